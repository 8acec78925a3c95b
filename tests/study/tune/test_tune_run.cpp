// SPDX-License-Identifier: Apache-2.0
// A trial of `metronome tune` against its runs, request by request and gap by gap.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/metrics/summary.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "study/tune/tune_run.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

// As numpy does it.
double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double rank = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (rank - std::floor(rank)) * (values[above] - values[below]);
}

RunRecord record_of(const Scenario& scenario, const Workload& workload) {
  Simulation simulation = prepare_simulation(scenario);
  RunRecorder recorder;
  EventSink* sinks[] = {&recorder};
  VirtualClock clock;
  simulation.run(workload, clock, sinks, [](const RunProgress&) { return true; });
  return recorder.finish();
}

}  // namespace

TEST_CASE("share, goodput and percentiles of a trial are of the same requests", "[tune]") {
  // A KV cache so small that requests are preempted, and one that is too small for a few.
  for (const char* cache : {"kv_cache: {num_blocks: 300}\n", "kv_cache: {num_blocks: 90}\n"}) {
    INFO(cache);
    const ScenarioFile file = parse_scenario(
        std::string(kSmallScenario) + cache + "slo: {ttft_ms: 60, itl_ms: 20}\n", "small.yaml", {});
    const Scenario& scenario = file.variants.front();
    const TuneWorkloads workloads(scenario, 3);
    TuneSetting setting(scenario, workloads);
    for (const double load : {5.0, 40.0, 200.0}) {
      INFO("load " << load);
      const TuneTrial trial = setting.run(load, 3 * 20);
      std::vector<double> ttft_ms, gaps_ms;
      std::int64_t num_judged = 0;
      std::int64_t num_good = 0;
      for (std::size_t seed = 0; seed < 3; ++seed) {
        const RunRecord record = record_of(scenario, *workloads.at_load(seed, load, 1));
        for (std::size_t i = record.requests.size() / 5; i < record.requests.size(); ++i) {
          const RequestRecord& request = record.requests[i];
          ++num_judged;
          if (!request.completed()) continue;
          ttft_ms.push_back(to_ms(request.ttft_ns()));
          double longest_ms = 0;
          std::vector<TimeNs> times;
          for (const TokenRun& run : record.runs_of(i)) {
            for (std::int32_t s = run.first_step; s <= run.last_step(); ++s) {
              times.push_back(record.steps.finished_at(static_cast<std::size_t>(s)));
            }
          }
          for (std::size_t t = 1; t < times.size(); ++t) {
            gaps_ms.push_back(to_ms(times[t] - times[t - 1]));
            longest_ms = std::max(longest_ms, gaps_ms.back());
          }
          num_good += ttft_ms.back() <= 60 && longest_ms <= 20 ? 1 : 0;
        }
      }
      REQUIRE(static_cast<std::int64_t>(trial.good.size()) == num_judged);
      const double attainment = static_cast<double>(num_good) / static_cast<double>(num_judged);
      CHECK(trial.attainment == attainment);
      CHECK(trial.goodput == Approx(attainment * load));
      CHECK(trial.summary.ttft.p99_ms == Approx(percentile(ttft_ms, 0.99)));
      CHECK(trial.summary.itl.p99_ms == Approx(percentile(gaps_ms, 0.99)));
    }
  }
}

TEST_CASE("no load stretches arrivals beyond the longest simulated time", "[tune]") {
  const ScenarioFile file = parse_scenario(kSmallScenario, "small.yaml", {});
  const TuneWorkloads workloads(file.variants.front(), 1);
  CHECK(workloads.at_load(0, 1e-6, 1)->requests.back().arrival == 20'000'000 * kNsPerSecond);
  CHECK(error_of([&] { workloads.at_load(0, 1e-9, 1); }) ==
        "small.yaml:5: workload: at this load the last request would arrive after "
        "20000000000.000000 s; at most 1000000000 s");
}

TEST_CASE("the limits that hold are the lowest that enough requests keep together", "[tune]") {
  const auto request = [](double ttft_ms, double itl_ms) {
    RequestRecord record;
    record.reason = EndReason::Length;
    record.arrival = 0;
    record.first_token = static_cast<TimeNs>(ttft_ms * 1e6);
    record.num_output_tokens = 2;
    record.max_itl_ns = static_cast<TimeNs>(itl_ms * 1e6);
    record.last_token = record.first_token + record.max_itl_ns;
    return record;
  };
  SloConfig slo;
  slo.ttft_ms = 100;
  slo.itl_ms = 20;
  // Nine of ten keep the limit on ITL, and need 150.2 ms to the first token.
  std::vector<RequestRecord> requests(5, request(90, 5));
  for (int i = 0; i < 4; ++i) requests.push_back(request(150.2, 10));
  requests.push_back(request(40, 900));
  const auto held = limits_that_hold(requests, 10, slo, 0.9);
  REQUIRE(held);
  CHECK(held->ttft_ms == 151.0);
  CHECK(held->itl_ms == 20.0);
  CHECK_FALSE(held->tpot_ms);
  // All requests count; the limit on ITL is rounded up.
  CHECK(limits_that_hold(requests, 10, slo, 1)->itl_ms == 900.0);
  CHECK(limits_that_hold(requests, 10, slo, 0.5)->ttft_ms == 100.0);
  // Too few have completed.
  CHECK_FALSE(limits_that_hold(requests, 12, slo, 0.9));
}

}  // namespace TEST_FILE
