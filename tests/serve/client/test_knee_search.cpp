// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "core/base/rng.h"
#include "core/metrics/client_record.h"
#include "serve/client/knee_search.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/serve/client/load_lab.h"

namespace metronome::TEST_FILE {

using namespace metronome::testing;

namespace {

Workload poisson_workload(std::size_t count, double rate, std::uint64_t seed) {
  Workload workload = small_workload(count, 20);
  Rng rng(seed, "arrivals");
  double time_s = 0;
  for (RequestSpec& request : workload.requests) {
    time_s += rng.gamma(1, 1 / rate);
    request.arrival = std::llround(time_s * 1e9);
  }
  return workload;
}

// A server that answers `num_slots` requests at once, each for `answer_s`, its first token after a
// tenth of that: it carries num_slots / answer_s requests a second.
struct Queue {
  std::size_t num_slots = 10;
  double answer_s = 1;
  std::int64_t num_failed = 0;  // of each load, its first requests
  std::vector<double> rates = {};
  std::vector<TimeNs> most = {};

  RunRecord operator()(const Workload& load, double rate, TimeNs most_ns) {
    rates.push_back(rate);
    most.push_back(most_ns);
    std::vector<TimeNs> free(num_slots, 0);
    std::vector<WatchedRequest> watched;
    std::int64_t left = num_failed;
    for (const RequestSpec& spec : load.requests) {
      const auto slot = std::min_element(free.begin(), free.end());
      const TimeNs begin = std::max(*slot, spec.arrival);
      const TimeNs end = begin + static_cast<TimeNs>(answer_s * 1e9);
      WatchedRequest request;
      request.request.arrival = spec.arrival;
      request.request.num_prompt_tokens = spec.num_prompt_tokens;
      request.request.max_output_tokens = 2;
      request.view = {spec.arrival, 2};
      if (left-- > 0 || end > most_ns) {
        request.request.reason = EndReason::Aborted;
        request.request.ended = std::min(end, most_ns);
        request.view.num_tokens = 0;
      } else {
        *slot = end;
        request.request.reason = EndReason::Length;
        request.request.ended = end;
        request.token_times = {begin + static_cast<TimeNs>(answer_s * 1e8), end};
      }
      watched.push_back(request);
    }
    return make_client_record(watched);
  }
};

KneeResult search(const Workload& workload, const KneeOptions& options, Queue& server) {
  return find_knee(workload, options, [&](const Workload& load, double rate, TimeNs most) {
    return knee_point(server(load, rate, most), rate, options);
  });
}

double rate_at(const KneeResult& result, const std::optional<std::size_t>& place) {
  REQUIRE(place);
  return result.points[*place].rate;
}

}  // namespace

TEST_CASE("a load has its rate, whatever part of the workload it is", "[bench_serve]") {
  const Workload all = poisson_workload(400, 7, 3);
  CHECK(rate_of(all) == Approx(7).epsilon(0.2));
  for (const std::size_t count : std::vector<std::size_t>{1, 20, 133, 400}) {
    const Workload load = workload_at(all, count, 2.5);
    REQUIRE(load.requests.size() == count);
    CHECK(to_seconds(load.requests.back().arrival) ==
          Approx(static_cast<double>(count) / 2.5).epsilon(1e-9));
    // The shape stays.
    const double scale = static_cast<double>(load.requests.back().arrival) /
                         static_cast<double>(all.requests[count - 1].arrival);
    CHECK(static_cast<double>(load.requests[count / 2].arrival) ==
          Approx(scale * static_cast<double>(all.requests[count / 2].arrival)).epsilon(1e-9));
  }
  // Requests that all come at once have no rate; the first one after them gives it.
  Workload burst = small_workload(10, 5);
  CHECK(knee_error(burst).starts_with("all requests arrive at once"));
  burst.requests[8].arrival = burst.requests[9].arrival = kNsPerSecond;
  CHECK(knee_error(burst).empty());
  CHECK(workload_at(burst, 3, 1).requests.size() == 9);
  burst.mode = ArrivalMode::ClosedLoop;
  CHECK(knee_error(burst).starts_with("clients that wait"));
}

TEST_CASE("the knee of a queue is what it carries", "[bench_serve]") {
  // 10 slots of 1 s: 10 requests/s. 40 slots of 2.5 s: 16. 3 slots of 0.1 s: 30.
  const auto [slots, answer_s] =
      GENERATE(std::pair{std::size_t{10}, 1.0}, std::pair{std::size_t{40}, 2.5},
               std::pair{std::size_t{3}, 0.1});
  const double first = GENERATE(1.0, 8.0, 300.0);
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(slots, answer_s, first, seed);
  const double carried = static_cast<double>(slots) / answer_s;
  const Workload workload = poisson_workload(6000, 5, seed);
  Queue server{slots, answer_s};
  KneeOptions options;
  options.first_rate = first;
  options.point_s = 60;
  options.time_limit_s = 1e6;
  const KneeResult result = search(workload, options, server);
  CHECK(result.end == KneeEnd::Found);
  const double knee = rate_at(result, result.knee), above = rate_at(result, result.above);
  CHECK(above <= 1.1 * knee * 1.001);
  // A queue is behind from what it carries on, and by 10 % at the latest where that is sure.
  CHECK(knee > 0.9 * carried);
  CHECK(knee < 1.25 * carried);
  CHECK(above > carried);
  // The search stops past saturation: beside the first one no load is more than twice the knee.
  for (std::size_t i = 1; i < server.rates.size() && first < carried; ++i) {
    CHECK(server.rates[i] <= 2.05 * knee);
  }
  CHECK(result.points.size() <= 16);
  CHECK(knee_reason(result, options).find(" requests end in the second half") != std::string::npos);
  // The same answers give the same search.
  Queue again{slots, answer_s};
  search(workload, options, again);
  CHECK(again.rates == server.rates);
}

TEST_CASE("the SLO makes a lower knee", "[bench_serve]") {
  const Workload workload = poisson_workload(6000, 5, 1);
  KneeOptions options;
  options.first_rate = 2;
  options.point_s = 60;
  options.time_limit_s = 1e6;
  Queue all, within, half;
  const KneeResult free = search(workload, options, all);
  options.slo.ttft_ms = 150;  // of which an answer without a wait takes 100
  const KneeResult limited = search(workload, options, within);
  CHECK(rate_at(limited, limited.knee) < 0.8 * rate_at(free, free.knee));
  CHECK(limited.points[*limited.above].verdict == KneeVerdict::Slow);
  CHECK(limited.points[*limited.above].summary.slo_attainment < 0.99);
  CHECK(knee_reason(limited, options).find("of the requests meet the SLO; 99.0 % are required") !=
        std::string::npos);
  options.attainment = 0.5;
  const KneeResult lenient = search(workload, options, half);
  CHECK(rate_at(lenient, lenient.knee) > rate_at(limited, limited.knee));
}

TEST_CASE("a search ends within its limits", "[bench_serve]") {
  KneeOptions options;
  options.first_rate = 1;
  SECTION("a server that never keeps up") {
    Queue server;
    server.num_failed = 2;
    options.time_limit_s = 1e6;
    const KneeResult result = search(poisson_workload(50, 5, 1), options, server);
    CHECK_FALSE(result.knee);
    // 1, 1/2, ... 1/16: an answer takes 1 s, so that the server is idle for 15 of 16 s.
    CHECK(result.end == KneeEnd::Idle);
    CHECK(result.points.size() == 5);
    CHECK(result.points[0].verdict == KneeVerdict::Failing);
    CHECK(verdict_text(result.points[0], options) ==
          "28 of 30 requests complete; 99.0 % are required");
    CHECK(knee_reason(result, options) ==
          "at 0.0625 requests/s the server is nearly idle, and 18 of 20 requests complete; 99.0 % "
          "are required");
    server.answer_s = 60;
    options.first_rate = 1000;
    const KneeResult slow = search(poisson_workload(50, 5, 1), options, server);
    CHECK(slow.end == KneeEnd::ManyPoints);
    CHECK(slow.points.size() == 16);
    CHECK(knee_reason(slow, options) == "16 loads were sent");
  }
  SECTION("time") {
    Queue server;
    options.time_limit_s = 100;
    const KneeResult result = search(poisson_workload(6000, 5, 1), options, server);
    CHECK(result.end == KneeEnd::TimeLimit);
    std::string loads;
    for (const KneePoint& point : result.points) {
      loads += std::to_string(point.rate) + ": " + verdict_text(point, options) + "; " +
               std::to_string(to_seconds(point.summary.duration_ns)) + " s\n";
    }
    INFO(loads);
    CHECK(rate_at(result, result.knee) == 4);  // 1, 2 and 4, for 30 s each
    CHECK_FALSE(result.above);
    double used_s = 0;
    for (const KneePoint& point : result.points) used_s += to_seconds(point.summary.duration_ns);
    CHECK(used_s < 100);
    for (const TimeNs most : server.most) CHECK(to_seconds(most) <= 100);
  }
  SECTION("requests that all arrive before an answer") {
    Queue server;
    server.num_slots = 1000;
    const KneeResult result = search(poisson_workload(100, 5, 1), options, server);
    CHECK(result.end == KneeEnd::FewRequests);
    CHECK(rate_at(result, result.knee) == 32);  // at 64 they arrive within two answers
    CHECK_FALSE(result.above);
  }
  SECTION("answers that take longer than the load") {
    Queue server;
    server.num_slots = 1000;
    server.answer_s = 40;  // 25 requests/s
    options.time_limit_s = 1e6;
    const KneeResult result = search(poisson_workload(6000, 5, 1), options, server);
    // The first load is sent again, for four times as long as an answer.
    CHECK(server.rates[0] == server.rates[1]);
    CHECK(result.points[0].num_requests == 160);
    CHECK(rate_at(result, result.knee) > 20);
  }
}

}  // namespace metronome::TEST_FILE
