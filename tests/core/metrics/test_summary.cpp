// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "core/base/distribution.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "tests/catch.h"
#include "tests/fake_run.h"

namespace TEST_FILE {
using namespace metronome;
using metronome::testing::decode;
using metronome::testing::FakeChunk;
using metronome::testing::FakeRun;
using metronome::testing::prefill;

namespace {

constexpr TimeNs kMs = kNsPerMs;

// numpy.percentile(values, 100 * quantile), written down plainly.
double percentile(std::vector<double> values, double quantile) {
  std::sort(values.begin(), values.end());
  const double position = quantile * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(std::floor(position));
  const std::size_t high = std::min(low + 1, values.size() - 1);
  const double t = position - std::floor(position);
  const double difference = values[high] - values[low];
  return t < 0.5 ? values[low] + difference * t : values[high] - difference * (1 - t);
}

void check_distribution(const Distribution& actual, const std::vector<double>& values_ns) {
  REQUIRE(actual.count == static_cast<std::int64_t>(values_ns.size()));
  if (values_ns.empty()) {
    REQUIRE(std::isnan(actual.mean_ms));
    REQUIRE(std::isnan(actual.max_ms));
    return;
  }
  long double sum = 0;
  for (const double value : values_ns) sum += value;
  const long double mean = sum / static_cast<long double>(values_ns.size());
  long double squares = 0;
  for (const double value : values_ns) squares += (value - mean) * (value - mean);
  const long double variance = squares / static_cast<long double>(values_ns.size());
  REQUIRE(actual.mean_ms == Approx(static_cast<double>(mean) / 1e6).epsilon(1e-12));
  REQUIRE(actual.std_ms ==
          Approx(std::sqrt(static_cast<double>(variance)) / 1e6).epsilon(1e-9).margin(1e-12));
  REQUIRE(actual.min_ms == *std::min_element(values_ns.begin(), values_ns.end()) / 1e6);
  REQUIRE(actual.max_ms == *std::max_element(values_ns.begin(), values_ns.end()) / 1e6);
  REQUIRE(actual.p50_ms == percentile(values_ns, 0.50) / 1e6);
  REQUIRE(actual.p90_ms == percentile(values_ns, 0.90) / 1e6);
  REQUIRE(actual.p95_ms == percentile(values_ns, 0.95) / 1e6);
  REQUIRE(actual.p99_ms == percentile(values_ns, 0.99) / 1e6);
}

}  // namespace

TEST_CASE("percentiles are NumPy's", "[core][distribution]") {
  // numpy.percentile([1, 2, 3, 4], [50, 90, 95, 99]) = 2.5, 3.7, 3.85, 3.97
  std::vector<double> sample = {3e6, 1e6, 4e6, 2e6};
  const Distribution values = describe(sample);
  CHECK(values.count == 4);
  CHECK(values.mean_ms == 2.5);
  CHECK(values.std_ms == Approx(std::sqrt(1.25)));
  CHECK(values.p50_ms == 2.5);
  CHECK(values.p90_ms == Approx(3.7));
  CHECK(values.p95_ms == Approx(3.85));
  CHECK(values.p99_ms == Approx(3.97));
  CHECK(values.min_ms == 1);
  CHECK(values.max_ms == 4);
}

TEST_CASE("a single value is every percentile, and none is NaN", "[core][distribution]") {
  std::vector<double> one = {7e6};
  CHECK(describe(one).p99_ms == 7);
  CHECK(describe(one).std_ms == 0);
  std::vector<double> none;
  CHECK(std::isnan(describe(none).p50_ms));
  std::vector<WeightedTime> no_weight = {{5, 0}};
  CHECK(describe(no_weight).count == 0);
  CHECK(std::isnan(describe(no_weight).mean_ms));
}

TEST_CASE("a limit allows what its milliseconds allow, to the nanosecond",
          "[core][distribution][property]") {
  // 16.4 ms x 1e6 is a little less than 16,400,000 in binary.
  CHECK(longest_within(16.4) == 16'400'000);
  CHECK(longest_within(4.1) == 4'100'000);
  CHECK(longest_within(0.0000015) == 1);
  CHECK(longest_within(0) == 0);
  const std::uint64_t seed = 4711;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    const auto time = static_cast<TimeNs>(random() >> (12 + random() % 40));
    if (time > 30 * 24 * 3600 * kNsPerSecond) continue;
    INFO(time << " ns");
    // Between two times, as percentiles are.
    const double between = to_ms(time) + 0.4 / 1e6;
    REQUIRE(longest_within(to_ms(time)) == time);
    REQUIRE(to_ms(longest_within(between)) <= between);
    REQUIRE(to_ms(longest_within(between) + 1) > between);
  }
}

TEST_CASE("weighted samples equal expanded ones", "[core][distribution][property]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<WeightedTime> weighted;
    std::vector<double> expanded;
    const std::uint64_t range = seed % 3 == 0 ? 5 : seed % 3 == 1 ? 40'000'000 : 90'000'000'000;
    const std::uint64_t count = 1 + random() % 400;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto value = static_cast<TimeNs>(random() % range);
      const auto times = static_cast<std::int64_t>(random() % 5);
      weighted.push_back({value, times});
      expanded.insert(expanded.end(), static_cast<std::size_t>(times), static_cast<double>(value));
    }
    check_distribution(describe(weighted), expanded);
    check_distribution(describe(expanded), expanded);
  }
}

namespace {

// a: 100 tokens at 0 ms; b: 300 tokens at 15 ms, whose prefill makes a wait; c is refused.
Summary summarize_small_run() {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 100);
  const RequestId b = run.submit(15 * kMs, 300);
  const RequestId c = run.arrive(16 * kMs, 50);
  run.end(c, 20 * kMs, EndReason::QueueFull);
  run.admit(a, 0);
  run.next.num_used_blocks = 10;
  run.next.num_running = 1;
  run.step(0, 10 * kMs, {prefill(a, 0, 100, true)});
  run.next.num_used_blocks = 10;
  run.next.num_running = 1;
  run.next.num_waiting = 1;
  run.step(10 * kMs, 20 * kMs, {decode(a)});
  run.admit(b, 20 * kMs);
  run.next.num_used_blocks = 40;
  run.next.num_running = 2;
  run.step(20 * kMs, 60 * kMs, {decode(a), prefill(b, 0, 300, true)});
  run.end(a, 60 * kMs);
  run.next.num_used_blocks = 30;
  run.next.num_running = 1;
  run.step(70 * kMs, 80 * kMs, {decode(b)});  // the device stood still for 10 ms
  run.end(b, 80 * kMs, EndReason::Stop);
  SummaryOptions options;
  options.num_blocks = 100;
  options.slo.ttft_ms = 45;
  options.slo.itl_ms = 30;
  return summarize(recorder.finish(), options);
}

}  // namespace

TEST_CASE("a small run's requests, computed by hand", "[core][summary]") {
  const Summary summary = summarize_small_run();
  CHECK(summary.duration_ns == 80 * kMs);
  CHECK(summary.num_requests == 3);
  CHECK(summary.completed == 2);
  CHECK(summary.failed == 1);
  CHECK(summary.refused == 1);
  CHECK(summary.unfinished == 0);
  CHECK(summary.total_input_tokens == 400);
  CHECK(summary.total_output_tokens == 5);
  CHECK(summary.request_throughput == Approx(25));
  CHECK(summary.output_throughput == Approx(62.5));
  CHECK(summary.total_token_throughput == Approx(5062.5));
  CHECK(summary.ttft.mean_ms == 27.5);  // 10 and 45
  CHECK(summary.e2el.mean_ms == 62.5);  // 60 and 65
  CHECK(summary.tpot.mean_ms == 22.5);  // 50 / 2 and 20 / 1
  CHECK(summary.itl.count == 3);        // 10, 40, 20
  CHECK(summary.itl.p50_ms == 20);
  CHECK(summary.itl.max_ms == 40);
  CHECK(summary.queue.mean_ms == 2.5);  // 0 and 5
  CHECK(summary.jitter.mean_ms == 15);  // 30 and 0
  REQUIRE(summary.good.has_value());
  CHECK(*summary.good == 1);  // a waits 40 ms; b's first token comes just in time
  CHECK(*summary.request_goodput == Approx(12.5));
  CHECK(*summary.slo_attainment == Approx(1.0 / 3));
  CHECK(summary.max_output_tokens_per_s == 5);
  CHECK(summary.max_concurrent_requests == 2);
}

TEST_CASE("a small run's steps, computed by hand", "[core][summary]") {
  const Summary summary = summarize_small_run();
  CHECK(summary.num_steps == 4);
  CHECK(summary.mean_batch_tokens == Approx(403.0 / 4));
  CHECK(summary.busy_share == Approx(70.0 / 80));
  CHECK(summary.mean_kv_use == Approx((10 * 20 + 40 * 40 + 30 * 10) / 80.0 / 100));
  CHECK(summary.peak_kv_use == Approx(0.4));
  CHECK(summary.mean_running == Approx((20 + 80 + 10) / 80.0));
  CHECK(summary.mean_waiting == Approx(10 / 80.0));
  CHECK(summary.peak_running == 2);
  CHECK(summary.peak_waiting == 1);

  const Stall& stall = summary.longest_stall;
  CHECK(stall.gap_ns == 40 * kMs);
  CHECK(stall.request == RequestId{0});
  CHECK(stall.began_at == 20 * kMs);
  CHECK(stall.step_before == 1);
  CHECK(stall.step_after == 2);
  CHECK(stall.cause == StallCause::Prefill);
  CHECK(stall.prefill_request == RequestId{1});
  CHECK(stall.prefill_position == 0);
  CHECK(stall.prefill_tokens == 300);
  CHECK(stall.prefill_step == 2);
  CHECK(stall.num_prefill_tokens == 300);
}

TEST_CASE("a stall over several steps blames the slowest prefill among them", "[core][summary]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 10);
  const RequestId b = run.submit(0, 900);
  run.step(0, 1 * kMs, {prefill(a, 0, 10, true)});
  run.step(1 * kMs, 3 * kMs, {prefill(b, 0, 100, false)});
  run.step(3 * kMs, 13 * kMs, {prefill(b, 100, 600, false)});
  run.step(13 * kMs, 18 * kMs, {decode(a), prefill(b, 700, 200, true)});
  run.end(a, 18 * kMs);
  const Stall stall = summarize(recorder.finish(), {}).longest_stall;
  CHECK(stall.gap_ns == 17 * kMs);
  CHECK(stall.step_before == 0);
  CHECK(stall.step_after == 3);
  CHECK(stall.prefill_request == b);
  CHECK(stall.prefill_tokens == 600);
  CHECK(stall.prefill_position == 100);
  CHECK(stall.prefill_step == 2);
  CHECK(stall.num_prefill_tokens == 900);
}

TEST_CASE("a preempted request's stall is put down to its preemption", "[core][summary]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 10);
  const RequestId b = run.submit(0, 20);
  run.step(0, 5 * kMs, {prefill(a, 0, 10, true), prefill(b, 0, 20, true)});
  run.preempt(b, 5 * kMs);
  run.step(5 * kMs, 10 * kMs, {decode(a)});
  run.step(10 * kMs, 20 * kMs, {decode(a), prefill(b, 0, 21, true)});
  run.end(a, 20 * kMs);
  run.end(b, 20 * kMs);
  const RunRecord record = recorder.finish();
  const Stall stall = summarize(record, {}).longest_stall;
  CHECK(stall.request == b);
  CHECK(stall.gap_ns == 15 * kMs);
  CHECK(stall.cause == StallCause::Preemption);
  CHECK(longest_stall_of(record, index(a)).cause == StallCause::Prefill);
}

TEST_CASE("a stall without prefill or preemption has no known cause", "[core][summary]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 10);
  run.step(0, 5 * kMs, {prefill(a, 0, 10, true)});
  run.step(5 * kMs, 9 * kMs, {decode(a)});
  run.end(a, 9 * kMs);
  CHECK(summarize(recorder.finish(), {}).longest_stall.cause == StallCause::Unknown);
}

TEST_CASE("without a completed request latencies do not exist", "[core][summary]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 10);
  const RequestId b = run.submit(0, 10);
  run.step(0, 10 * kMs, {prefill(a, 0, 10, true)});
  run.step(10 * kMs, 20 * kMs, {decode(a)});
  run.next.failed = true;
  run.step(20 * kMs, 30 * kMs, {decode(a, false)});
  run.end(a, 30 * kMs, EndReason::StepFailed);
  run.end(b, 35 * kMs, EndReason::Aborted);
  SummaryOptions options;
  options.slo.e2el_ms = 1000;
  const Summary summary = summarize(recorder.finish(), options);
  CHECK(summary.completed == 0);
  CHECK(summary.failed == 2);
  CHECK(summary.step_failed == 1);
  CHECK(summary.aborted == 1);
  CHECK(summary.itl.count == 0);
  CHECK(std::isnan(summary.ttft.mean_ms));
  CHECK(summary.longest_stall.request == kNoRequest);
  CHECK(summary.num_failed_steps == 1);
  CHECK(summary.duration_ns == 35 * kMs);
  CHECK(*summary.slo_attainment == 0);
  CHECK(std::isnan(summary.mean_kv_use));  // num_blocks is unknown

  const Summary empty = summarize(RunRecord{}, options);
  CHECK(empty.duration_ns == 0);
  CHECK(std::isnan(*empty.slo_attainment));
  CHECK(std::isnan(empty.mean_batch_tokens));
}

TEST_CASE("the prefix hit rate is that of admitted requests", "[core][summary]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId admitted = run.submit(0, 100);
  run.end(run.arrive(0, 700), 0, EndReason::QueueFull);
  run.end(run.submit(0, 200), 5 * kMs, EndReason::Aborted);  // it only waited
  run.admit(admitted, 0);
  run.step(0, 10 * kMs, {prefill(admitted, 64, 36, true)});
  run.end(admitted, 10 * kMs);
  RunRecord record = recorder.finish();
  record.requests[index(admitted)].num_prefix_hit_tokens = 64;
  CHECK(summarize(record, {}).prefix_hit_rate == 0.64);
}

TEST_CASE("a single token counts as TPOT 0 for goodput", "[core][summary]") {
  RequestRecord request;
  request.reason = EndReason::Length;
  request.first_token = request.last_token = 50 * kMs;
  request.num_output_tokens = 1;
  SloConfig slo;
  slo.tpot_ms = 0.001;
  slo.itl_ms = 0.001;
  CHECK(meets_slo(request, slo));
  slo.ttft_ms = 50;
  CHECK(meets_slo(request, slo));
  slo.ttft_ms = 49.999;
  CHECK_FALSE(meets_slo(request, slo));
  slo = {};
  slo.e2el_ms = 49;
  CHECK_FALSE(meets_slo(request, slo));
  slo = {};
  request.reason = EndReason::Aborted;
  CHECK_FALSE(meets_slo(request, slo));
}

TEST_CASE("who arrives when another ends does not overlap with it", "[core][summary]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 10);
  run.step(0, 10 * kMs, {prefill(a, 0, 10, true)});
  run.end(a, 10 * kMs);
  const RequestId b = run.submit(10 * kMs, 10);
  run.step(10 * kMs, 20 * kMs, {prefill(b, 0, 10, true)});
  run.end(b, 20 * kMs);
  CHECK(summarize(recorder.finish(), {}).max_concurrent_requests == 1);
}

namespace {

// Everything the naive reference knows of a random run.
struct RandomRun {
  RunRecord record;
  std::vector<std::vector<TimeNs>> token_times;
};

RandomRun play(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  RunRecorder recorder;
  FakeRun run({&recorder});
  const std::uint64_t num_steps = 20 + below(200);
  const std::uint64_t steadiness = 2 + below(60);
  std::vector<RequestId> live;
  TimeNs now = 0;
  for (std::uint64_t s = 0; s < num_steps; ++s) {
    if (below(8) == 0) live.push_back(run.submit(now, 1 + static_cast<std::int32_t>(below(90))));
    const TimeNs finish = now + static_cast<TimeNs>(below(40) * below(3) * 10'000'000);
    std::vector<FakeChunk> chunks;
    for (const RequestId id : live) {
      if (below(steadiness) == 0) continue;
      if (below(steadiness) == 0) chunks.push_back(prefill(id, 0, 5, true));
      chunks.push_back(decode(id, below(steadiness) != 0));
    }
    run.step(now, finish, chunks);
    now = finish;
    if (!live.empty() && below(10) == 0) {
      const std::size_t victim = below(live.size());
      run.end(live[victim], now, below(3) != 0 ? EndReason::Length : EndReason::StepFailed);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    }
  }
  return {recorder.finish(), run.token_times};
}

std::int64_t most_at_once(const RunRecord& record) {
  std::int64_t most = 0;
  for (const RequestRecord& one : record.requests) {
    std::int64_t overlapping = 0;
    for (const RequestRecord& other : record.requests) {
      const bool counts = one.completed() && other.completed() && other.last_token != kNoTime;
      overlapping += counts && other.arrival <= one.arrival && one.arrival < other.last_token;
    }
    most = std::max(most, overlapping);
  }
  return most;
}

}  // namespace

TEST_CASE("summaries of random runs equal a token by token reference",
          "[core][summary][property]") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    INFO("seed " << seed);
    const RandomRun run = play(seed);
    const Summary summary = summarize(run.record, {});
    std::vector<double> gaps, ttft, e2el, tpot, jitter;
    std::map<TimeNs, int> buckets;
    TimeNs first_arrival = kNever;
    for (const RequestRecord& request : run.record.requests) {
      if (request.completed() && request.last_token != kNoTime) {
        first_arrival = std::min(first_arrival, request.arrival);
      }
    }
    for (std::size_t i = 0; i < run.record.requests.size(); ++i) {
      const RequestRecord& request = run.record.requests[i];
      const std::vector<TimeNs>& times = run.token_times[i];
      if (!request.completed() || times.empty()) continue;
      std::vector<double> own;
      for (std::size_t t = 1; t < times.size(); ++t) {
        own.push_back(static_cast<double>(times[t] - times[t - 1]));
      }
      for (const TimeNs time : times) ++buckets[(time - first_arrival) / kNsPerSecond];
      ttft.push_back(static_cast<double>(times.front() - request.arrival));
      e2el.push_back(static_cast<double>(times.back() - request.arrival));
      gaps.insert(gaps.end(), own.begin(), own.end());
      if (own.empty()) continue;
      tpot.push_back(static_cast<double>(times.back() - times.front()) /
                     static_cast<double>(own.size()));
      jitter.push_back(*std::max_element(own.begin(), own.end()) -
                       *std::min_element(own.begin(), own.end()));
    }
    check_distribution(summary.itl, gaps);
    check_distribution(summary.ttft, ttft);
    check_distribution(summary.e2el, e2el);
    check_distribution(summary.tpot, tpot);
    check_distribution(summary.jitter, jitter);
    int fullest = 0;
    for (const auto& [second, count] : buckets) fullest = std::max(fullest, count);
    REQUIRE(summary.max_output_tokens_per_s == fullest);
    REQUIRE(summary.max_concurrent_requests == most_at_once(run.record));
    if (!gaps.empty()) REQUIRE(to_ms(summary.longest_stall.gap_ns) == summary.itl.max_ms);
  }
}

}  // namespace TEST_FILE
