// SPDX-License-Identifier: Apache-2.0
// Random numbers, synthetic workloads, prompts.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "core/base/rng.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "tests/catch.h"
#include "tests/core/workload/workload_helpers.h"

namespace metronome::testing::TEST_FILE {
namespace {

struct Moments {
  double mean = 0;
  double variance = 0;
};

template <class Draw>
Moments moments_of(std::size_t count, Draw draw) {
  double sum = 0;
  double sum_of_squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = draw();
    sum += x;
    sum_of_squares += x * x;
  }
  const auto n = static_cast<double>(count);
  return {sum / n, sum_of_squares / n - (sum / n) * (sum / n)};
}

constexpr std::size_t kManyDraws = 200'000;

std::string with_arrivals(const std::string& arrivals, int num_requests = 1000) {
  return "{num_requests: " + std::to_string(num_requests) + ", arrivals: " + arrivals +
         ", prompt_tokens: {value: 10}, output_tokens: {value: 5}}";
}

std::string with_prompts(const std::string& prompt_tokens, int num_requests = 1000) {
  return "{num_requests: " + std::to_string(num_requests) +
         ", arrivals: {process: poisson, rate: 4}, prompt_tokens: " + prompt_tokens +
         ", output_tokens: {distribution: uniform, min: 1, max: 1000}}";
}

std::vector<TimeNs> arrivals_of(const Workload& workload) {
  std::vector<TimeNs> times;
  for (const RequestSpec& request : workload.requests) times.push_back(request.arrival);
  return times;
}

std::vector<std::int64_t> prompts_of(const Workload& workload) {
  std::vector<std::int64_t> lengths;
  for (const RequestSpec& request : workload.requests) {
    lengths.push_back(request.num_prompt_tokens);
  }
  return lengths;
}

std::vector<std::int64_t> outputs_of(const Workload& workload) {
  std::vector<std::int64_t> lengths;
  for (const RequestSpec& request : workload.requests) {
    lengths.push_back(request.max_output_tokens);
  }
  return lengths;
}

// Order-dependent hash of everything a workload holds.
std::uint64_t digest_of(const Workload& workload) {
  std::uint64_t hash = 0;
  const auto add = [&hash](std::int64_t x) { hash = mix64(hash ^ static_cast<std::uint64_t>(x)); };
  for (const RequestSpec& request : workload.requests) {
    add(request.arrival);
    add(request.num_prompt_tokens);
    add(request.max_output_tokens);
    add(request.priority);
  }
  for (const PromptSegment& segment : workload.segments) {
    add(static_cast<std::int64_t>(segment.content));
    add(segment.num_tokens);
  }
  for (const std::uint32_t begin : workload.segment_begin) add(begin);
  return hash;
}

// ---- Random numbers ----

TEST_CASE("mix64 is SplitMix64's output function", "[core][rng]") {
  // The first outputs of the published generator seeded with 1234567.
  std::uint64_t state = 1234567;
  std::vector<std::uint64_t> drawn;
  for (int i = 0; i < 5; ++i) {
    drawn.push_back(mix64(state));
    state += 0x9e3779b97f4a7c15ull;
  }
  CHECK(drawn == std::vector<std::uint64_t>{6457827717110365317u, 3203168211198807973u,
                                            9817491932198370423u, 4593380528125082431u,
                                            16408922859458223821u});
}

TEST_CASE("streams depend on seed and purpose only", "[core][rng]") {
  Rng a(7, "arrivals");
  Rng again(7, "arrivals");
  Rng other_purpose(7, "prompt_tokens");
  Rng other_seed(8, "arrivals");
  const std::uint64_t first = a();
  CHECK(first == again());
  CHECK(first != other_purpose());
  CHECK(first != other_seed());
}

TEST_CASE("distributions have their known moments", "[core][rng]") {
  Rng rng(2024, "moments");
  SECTION("uniform") {
    const Moments m = moments_of(kManyDraws, [&] { return rng.uniform(); });
    CHECK(m.mean == Approx(0.5).margin(0.003));
    CHECK(m.variance == Approx(1.0 / 12).epsilon(0.01));
  }
  SECTION("uniform_int, both ends included") {
    std::map<std::int64_t, int> counts;
    const Moments m = moments_of(kManyDraws, [&] {
      const std::int64_t x = rng.uniform_int(-3, 6);
      ++counts[x];
      return static_cast<double>(x);
    });
    CHECK(counts.begin()->first == -3);
    CHECK(counts.rbegin()->first == 6);
    CHECK(counts.size() == 10);
    CHECK(m.mean == Approx(1.5).margin(0.03));
    CHECK(m.variance == Approx(99.0 / 12).epsilon(0.01));
    CHECK(rng.uniform_int(5, 5) == 5);
    CHECK_THROWS_AS(rng.uniform_int(5, 4), InvariantError);
  }
  SECTION("gamma, bursty and regular") {
    for (const double shape : {0.3, 1.0, 4.5}) {
      const double scale = 2.0;
      const Moments m = moments_of(kManyDraws, [&] { return rng.gamma(shape, scale); });
      CAPTURE(shape);
      CHECK(m.mean == Approx(shape * scale).epsilon(0.02));
      CHECK(m.variance == Approx(shape * scale * scale).epsilon(0.04));
    }
  }
  SECTION("normal") {
    const Moments m = moments_of(kManyDraws, [&] { return rng.normal(-2.0, 3.0); });
    CHECK(m.mean == Approx(-2.0).margin(0.03));
    CHECK(m.variance == Approx(9.0).epsilon(0.02));
  }
  SECTION("lognormal") {
    const Moments m = moments_of(kManyDraws, [&] { return rng.lognormal(1.0, 0.5); });
    CHECK(m.mean == Approx(std::exp(1.125)).epsilon(0.01));
    CHECK(m.variance == Approx((std::exp(0.25) - 1) * std::exp(2.25)).epsilon(0.04));
  }
}

// ---- Arrivals ----

TEST_CASE("rates are met exactly: the last arrival is n / rate", "[core][workload]") {
  for (const char* process : {"process: poisson", "process: gamma, burstiness: 0.25",
                              "process: gamma, burstiness: 30", "process: constant"}) {
    CAPTURE(process);
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      const Workload workload =
          make(with_arrivals(std::string("{rate: 4, ") + process + "}"), seed);
      const std::vector<TimeNs> times = arrivals_of(workload);
      CHECK(workload.mode == ArrivalMode::Timed);
      CHECK(std::is_sorted(times.begin(), times.end()));
      CHECK(times.front() > 0);
      CHECK(std::abs(times.back() - 250 * kNsPerSecond) <= 1);
    }
  }
}

TEST_CASE("gaps have the coefficient of variation of their burstiness", "[core][workload]") {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const Workload workload = make(with_arrivals(
        "{process: gamma, rate: 10, burstiness: " + std::to_string(burstiness) + "}", 100'000));
    TimeNs previous = 0;
    std::size_t next = 0;
    const Moments m = moments_of(workload.requests.size(), [&] {
      const TimeNs gap = workload.requests[next].arrival - previous;
      previous = workload.requests[next++].arrival;
      return to_seconds(gap);
    });
    CAPTURE(burstiness);
    CHECK(m.mean == Approx(0.1).epsilon(1e-6));
    CHECK(m.variance / (m.mean * m.mean) == Approx(1.0 / burstiness).epsilon(0.05));
  }
}

TEST_CASE("even the burstiest arrivals are in order and end at n / rate", "[core][workload]") {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    WorkloadConfig config;
    config.num_requests = 1 + static_cast<std::int64_t>(seed % 3);
    config.arrivals.process = ArrivalProcess::Gamma;
    config.arrivals.rate = 2;
    config.arrivals.burstiness = 0.001;
    const Workload workload = make_workload(config, seed);
    CAPTURE(seed);
    TimeNs last = 0;
    for (const RequestSpec& request : workload.requests) {
      REQUIRE(request.arrival >= last);
      last = request.arrival;
    }
    REQUIRE(last == config.num_requests * kNsPerSecond / 2);
  }
}

TEST_CASE("a closed loop must end within the clock's range", "[core][workload]") {
  WorkloadConfig config;
  config.num_requests = 12'000;
  config.arrivals.process = ArrivalProcess::ClosedLoop;
  config.arrivals.concurrency = 1;
  config.arrivals.think_time_ms = 1e9;
  CHECK_THROWS_AS(make_workload(config, 0), ConfigError);
}

TEST_CASE("poisson is gamma with burstiness 1, constant its limit", "[core][workload]") {
  const auto times = [](const std::string& arrivals) {
    return arrivals_of(make(with_arrivals(arrivals, 50)));
  };
  CHECK(times("{process: poisson, rate: 3}") == times("{process: gamma, burstiness: 1, rate: 3}"));
  CHECK(times("{process: constant, rate: 8}") ==
        times("{process: gamma, burstiness: .inf, rate: 8}"));
  const std::vector<TimeNs> constant = times("{process: constant, rate: 8}");
  for (std::size_t i = 0; i < constant.size(); ++i) {
    CHECK(constant[i] == static_cast<TimeNs>(i + 1) * 125 * kNsPerMs);
  }
  for (const char* process : {"poisson", "gamma", "constant"}) {
    const std::vector<TimeNs> at_once =
        times(std::string("{process: ") + process + ", rate: .inf}");
    CHECK(at_once == std::vector<TimeNs>(50, 0));
  }
}

TEST_CASE("bursts, closed loop and steps", "[core][workload]") {
  SECTION("bursts") {
    const Workload workload =
        make(with_arrivals("{process: burst, burst_size: 3, burst_interval_s: 0.5}", 7));
    const TimeNs half = 500 * kNsPerMs;
    CHECK(arrivals_of(workload) == std::vector<TimeNs>{0, 0, 0, half, half, half, 2 * half});
    CHECK(arrivals_of(make(with_arrivals("{process: burst}", 3))) == std::vector<TimeNs>{0, 0, 0});
  }
  SECTION("closed loop") {
    const Workload workload =
        make(with_arrivals("{process: closed_loop, concurrency: 16, think_time_ms: 2.5}", 40));
    CHECK(workload.mode == ArrivalMode::ClosedLoop);
    CHECK(workload.concurrency == 16);
    CHECK(workload.think_time == 2'500'000);
    CHECK(workload.requests.size() == 40);
    CHECK(workload.requests.back().arrival == 0);
  }
  SECTION("steps give the number of requests") {
    const Workload workload = make(
        "{arrivals: {process: steps, steps: [0, 2, 2, 8]}, prompt_tokens: {value: 9},"
        " output_tokens: {value: 3}}");
    CHECK(workload.mode == ArrivalMode::Steps);
    CHECK(arrivals_of(workload) == std::vector<TimeNs>{0, 2, 2, 8});
  }
}

TEST_CASE("arrivals too far in the future are refused", "[core][workload]") {
  CHECK(error_of([] { make(with_arrivals("{rate: 1e-6}", 10'000)); }) ==
        "w.yaml:1: workload.arrivals.rate: the last request would arrive after "
        "10000000000.000000 s; at most 1000000000 s");
}

// ---- Lengths and priorities ----

TEST_CASE("lengths follow their distribution", "[core][workload]") {
  SECTION("fixed") {
    const Workload workload = make(with_prompts("{value: 77}"));
    CHECK(prompts_of(workload) == std::vector<std::int64_t>(1000, 77));
    CHECK(workload.total_prompt_tokens() == 77'000);
  }
  SECTION("uniform, both ends included") {
    const Workload workload = make(with_prompts("{distribution: uniform, min: 3, max: 7}"));
    const std::vector<std::int64_t> lengths = prompts_of(workload);
    CHECK(std::set<std::int64_t>(lengths.begin(), lengths.end()) ==
          std::set<std::int64_t>{3, 4, 5, 6, 7});
  }
  SECTION("lognormal by median and p99") {
    const Workload workload =
        make(with_prompts("{distribution: lognormal, median: 1020, p99: 4142}", 200'000));
    std::vector<std::int64_t> lengths = prompts_of(workload);
    std::sort(lengths.begin(), lengths.end());
    CHECK(static_cast<double>(lengths[100'000]) == Approx(1020).epsilon(0.01));
    CHECK(static_cast<double>(lengths[198'000]) == Approx(4142).epsilon(0.02));
    CHECK(lengths.front() >= 1);
  }
  SECTION("lognormal is clamped") {
    const Workload workload =
        make(with_prompts("{distribution: lognormal, median: 100, p99: 1000, min: 50, max: 300}"));
    const std::vector<std::int64_t> lengths = prompts_of(workload);
    const auto [low, high] = std::minmax_element(lengths.begin(), lengths.end());
    CHECK(*low == 50);
    CHECK(*high == 300);
  }
  SECTION("empirical with weights") {
    const Workload workload = make(with_prompts(
        "{distribution: empirical, values: [16, 512, 99, 2048], weights: [1, 2.5, 0, 0.5]}",
        100'000));
    std::map<std::int64_t, int> counts;
    for (const std::int64_t length : prompts_of(workload)) ++counts[length];
    CHECK(counts.size() == 3);
    CHECK(counts[16] == Approx(25'000).epsilon(0.03));
    CHECK(counts[512] == Approx(62'500).epsilon(0.03));
    CHECK(counts[2048] == Approx(12'500).epsilon(0.03));
  }
  SECTION("empirical without weights") {
    const Workload workload =
        make(with_prompts("{distribution: empirical, values: [1, 2, 3, 4]}", 100'000));
    std::map<std::int64_t, int> counts;
    for (const std::int64_t length : prompts_of(workload)) ++counts[length];
    CHECK(counts.size() == 4);
    for (const auto& [length, count] : counts) CHECK(count == Approx(25'000).epsilon(0.03));
  }
}

TEST_CASE("priorities are drawn by weight", "[core][workload]") {
  const Workload workload = make(
      "{num_requests: 100000, arrivals: {rate: 1}, prompt_tokens: {value: 1},"
      " output_tokens: {value: 1}, priority: {values: [-1, 5], weights: [1, 3]}}");
  std::map<std::int32_t, int> counts;
  for (const RequestSpec& request : workload.requests) ++counts[request.priority];
  CHECK(counts.size() == 2);
  CHECK(counts[-1] == Approx(25'000).epsilon(0.03));
  CHECK(counts[5] == Approx(75'000).epsilon(0.03));
}

TEST_CASE("each kind of number has draws of its own", "[core][workload]") {
  const Workload base = make(with_prompts("{value: 100}"));
  SECTION("a different prompt distribution changes nothing else") {
    const Workload other = make(with_prompts("{distribution: lognormal, median: 50, p99: 900}"));
    CHECK(arrivals_of(other) == arrivals_of(base));
    CHECK(outputs_of(other) == outputs_of(base));
    CHECK(prompts_of(other) != prompts_of(base));
  }
  SECTION("prompts and outputs of one distribution are not the same draws") {
    const Workload other = make(with_prompts("{distribution: uniform, min: 1, max: 1000}"));
    CHECK(prompts_of(other) != outputs_of(other));
  }
  SECTION("more requests begin with the same lengths") {
    const Workload longer = make(with_prompts("{value: 100}", 1500));
    std::vector<std::int64_t> outputs = outputs_of(longer);
    outputs.resize(1000);
    CHECK(outputs == outputs_of(base));
  }
  SECTION("the seed matters") {
    CHECK(digest_of(make(with_prompts("{value: 100}"), 7)) == digest_of(base));
    CHECK(digest_of(make(with_prompts("{value: 100}"), 8)) != digest_of(base));
  }
}

TEST_CASE("draws are the same on every compiler", "[core][workload]") {
  Rng rng(7, "golden");
  CHECK(rng() == 18340888901801384860u);
  CHECK(rng.uniform_int(0, 999'999) == 104'168);
  CHECK(rng.uniform() == 0x1.09f98788646c4p-3);
  CHECK(rng.gamma(1.0, 1.0) == 0x1.1fe40d5b96361p+0);  // exponential, as of Poisson arrivals
  CHECK(rng.gamma(0.4, 2.0) == 0x1.6bdd9b810bc9ep-3);
  CHECK(rng.gamma(3.5, 2.0) == 0x1.0959413727325p+2);
  CHECK(rng.normal(0, 1) == -0x1.18dcff85820a1p-6);
  CHECK(rng.lognormal(0, 1) == 0x1.fa4ef167ba95ep+2);
  const Workload workload = make(
      "{num_requests: 100000, arrivals: {process: gamma, rate: 4, burstiness: 0.5},"
      " prompt_tokens: {distribution: lognormal, median: 1020, p99: 4142},"
      " output_tokens: {distribution: uniform, min: 1, max: 500},"
      " priority: {values: [0, 1, 2], weights: [3, 2, 1]},"
      " prefix: {kind: tree, prefix_tokens: 64, depth: 3, branching: 4}}");
  CHECK(digest_of(workload) == 15610091253976142343u);
}

// ---- Shared prefixes and prompts ----

std::vector<TokenId> prompt(const Workload& workload, std::size_t i, std::uint64_t seed = 7) {
  std::vector<TokenId> ids;
  workload.prompt_token_ids(i, seed, 32'000, ids);
  return ids;
}

std::size_t shared_length(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto [end, ignored] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end - a.begin());
}

TEST_CASE("requests of a group share their prefix", "[core][workload]") {
  const Workload workload = make(
      "{num_requests: 64, arrivals: {rate: 1}, prompt_tokens: {value: 100},"
      " output_tokens: {value: 1}, prefix: {kind: groups, num_groups: 4, prefix_tokens: 300}}");
  REQUIRE(workload.segment_begin.size() == 65);
  CHECK(workload.total_prompt_tokens() == 64 * 400);
  std::set<std::uint64_t> groups;
  for (std::size_t i = 0; i < 64; ++i) {
    const PromptSegment& prefix = workload.segments[workload.segment_begin[i]];
    CHECK(workload.segment_begin[i + 1] - workload.segment_begin[i] == 2);
    CHECK(prefix.num_tokens == 300);
    groups.insert(prefix.content);
  }
  CHECK(groups.size() == 4);
  for (std::size_t i = 1; i < 64; ++i) {
    const bool same = workload.segments[2 * i].content == workload.segments[0].content;
    const std::size_t shared = shared_length(prompt(workload, 0), prompt(workload, i));
    CHECK(shared >= (same ? 300u : 0u));
    CHECK(shared <= (same ? 303u : 3u));  // beyond it, ids agree by chance only
  }
}

TEST_CASE("requests share the tree path they have in common", "[core][workload]") {
  const Workload workload = make(
      "{num_requests: 200, arrivals: {rate: 1}, prompt_tokens: {value: 50},"
      " output_tokens: {value: 1},"
      " prefix: {kind: tree, depth: 3, branching: 3, prefix_tokens: 40}}");
  std::vector<std::set<std::uint64_t>> nodes(3);
  std::map<std::uint64_t, std::uint64_t> parent_of;
  for (std::size_t i = 0; i < 200; ++i) {
    CHECK(workload.requests[i].num_prompt_tokens == 3 * 40 + 50);
    const std::size_t begin = workload.segment_begin[i];
    REQUIRE(workload.segment_begin[i + 1] - begin == 4);
    for (std::size_t level = 0; level < 3; ++level) {
      const std::uint64_t node = workload.segments[begin + level].content;
      nodes[level].insert(node);
      if (level == 0) continue;
      const std::uint64_t parent = workload.segments[begin + level - 1].content;
      CHECK(parent_of.emplace(node, parent).first->second == parent);
    }
  }
  CHECK(nodes[0].size() == 1);
  CHECK(nodes[1].size() == 3);
  CHECK(nodes[2].size() == 9);
}

TEST_CASE("prompt token ids come from content and seed", "[core][workload]") {
  Workload workload;
  workload.requests = {{0, 6, 1, 0}, {0, 4, 1, 0}, {0, 6, 1, 0}};
  SECTION("unique prompts") {
    CHECK(prompt(workload, 0) == prompt(workload, 0));
    CHECK(prompt(workload, 0) != prompt(workload, 2));
    CHECK(prompt(workload, 0, 7) != prompt(workload, 0, 8));
    std::vector<TokenId> ids;
    workload.prompt_token_ids(0, 7, 3, ids);
    for (const TokenId id : ids) CHECK((value(id) >= 0 && value(id) < 3));
    workload.prompt_token_ids(0, 7, 1, ids);
    CHECK(ids == std::vector<TokenId>(6, TokenId(0)));
  }
  SECTION("a shorter segment is the beginning of a longer one") {
    workload.segments = {{42, 5}, {1, 1}, {42, 4}, {42, 5}, {2, 1}};
    workload.segment_begin = {0, 2, 3, 5};
    CHECK(shared_length(prompt(workload, 0), prompt(workload, 1)) == 4);
    CHECK(shared_length(prompt(workload, 0), prompt(workload, 2)) == 5);
  }
  SECTION("given ids") {
    workload.requests.resize(2);
    workload.token_ids = {TokenId(5), TokenId(6), TokenId(7), TokenId(8), TokenId(9),
                          TokenId(1), TokenId(3), TokenId(3), TokenId(3), TokenId(31'999)};
    workload.token_begin = {0, 6, 10};
    CHECK(prompt(workload, 1) ==
          std::vector<TokenId>{TokenId(3), TokenId(3), TokenId(3), TokenId(31'999)});
    CHECK(workload.token_id_error(32'000).empty());
    CHECK(workload.token_id_error(1000) ==
          "request 1 has token id 31999; allowed: the model's ids, 0 to 999");
    CHECK(workload.token_id_error(9) ==
          "request 0 has token id 9; allowed: the model's ids, 0 to 8");
  }
}

TEST_CASE("a million requests are 40 bytes each", "[core][workload]") {
  STATIC_REQUIRE(sizeof(RequestSpec) == 40);
  const Workload workload =
      make(with_prompts("{distribution: uniform, min: 1, max: 9}", 1'000'000));
  CHECK(workload.requests.capacity() == 1'000'000);
  CHECK(workload.segments.capacity() == 0);
  CHECK(workload.segment_begin.capacity() == 0);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
