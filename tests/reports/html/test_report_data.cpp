// SPDX-License-Identifier: Apache-2.0
// The data that a report draws of a run: known answers, and against the summary of the same record.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/base/json.h"
#include "core/base/rng.h"
#include "core/metrics/gap_analysis.h"
#include "core/metrics/summary.h"
#include "reports/html/report_data.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/fake_run.h"
#include "tests/reports/files/vlq_reader.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
using Numbers = std::vector<std::int64_t>;

namespace {

constexpr TimeNs kMs = kNsPerMs;

Numbers column(const Json& parent, const char* name, bool is_delta = false) {
  return read_vlq(parent.at(name).get<std::string>(), is_delta);
}

// Two requests decode, a third is prefilled in two chunks meanwhile.
RunRecord small_record() {
  RunRecorder recorder;
  FakeRun run({&recorder});
  StepResult result;
  const auto step = [&](TimeNs from, TimeNs until, TimeNs decode_only,
                        const std::vector<FakeChunk>& chunks) {
    result.decode_only_ns = decode_only;
    run.next.result = &result;
    run.next.num_used_blocks = static_cast<std::int32_t>(chunks.size());
    run.step(from, until, chunks);
  };
  const RequestId a = run.submit(0, 10);
  const RequestId b = run.submit(0, 10);
  const RequestId c = run.submit(20 * kMs, 6000);
  run.admit(a, 0);
  run.admit(b, 0);
  step(0, 10 * kMs, 0, {prefill(a, 0, 10, true), prefill(b, 0, 10, true)});
  step(11 * kMs, 21 * kMs, 10 * kMs, {decode(a), decode(b)});
  run.admit(c, 22 * kMs);
  step(22 * kMs, 62 * kMs, 11 * kMs, {decode(a), decode(b), prefill(c, 0, 4000, false)});
  step(62 * kMs, 92 * kMs, 10 * kMs, {decode(a), prefill(c, 4000, 2000, true)});
  step(95 * kMs, 107 * kMs, 12 * kMs, {decode(a), decode(b), decode(c)});
  for (const RequestId id : {a, b, c}) run.end(id, 107 * kMs);
  return recorder.finish();
}

// Some hundred requests of random lengths in random steps, some passed over now and then.
RunRecord random_record(std::uint64_t seed) {
  Rng rng(seed, "report data");
  RunRecorder recorder;
  FakeRun run({&recorder});
  TimeNs now = 0;
  std::vector<RequestId> running;
  std::map<std::size_t, int> left;
  for (int s = 0; s < 400; ++s) {
    std::vector<FakeChunk> chunks;
    for (const RequestId id : running) {
      if (chance(rng, 0.9)) chunks.push_back(decode(id));
    }
    if (chance(rng, 0.5)) {
      const std::int32_t num_tokens = draw(rng, 1, 5000);
      const RequestId id = run.submit(now, num_tokens);
      run.admit(id, now);
      chunks.push_back(prefill(id, 0, num_tokens, true));
      running.push_back(id);
      left[index(id)] = draw(rng, 1, 60);
    }
    if (chunks.empty()) continue;
    const TimeNs start = now + draw(rng, 0, 300'000);
    now = start + draw(rng, 1'000'000, 90'000'000);
    run.step(start, now, chunks);
    std::erase_if(running, [&](RequestId id) {
      if (--left[index(id)] > 0) return false;
      run.end(id, now);
      return true;
    });
  }
  for (const RequestId id : running) run.end(id, now);
  return recorder.finish();
}

// The first request decodes all along while 38 others come and go, one at a time; the prompt of the
// last holds it up, and five more come and go.
RunRecord late_stall() {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId first = run.submit(0, 10);
  run.admit(first, 0);
  run.step(0, 10 * kMs, {prefill(first, 0, 10, true)});
  TimeNs now = 10 * kMs;
  for (int i = 1; i < 45; ++i) {
    const RequestId other = run.submit(now, 10);
    run.admit(other, now);
    const TimeNs time = (i == 39 ? 100 : 10) * kMs;
    run.step(now, now + time, {decode(first), prefill(other, 0, 10, true)});
    now += time;
    run.end(other, now);
  }
  run.end(first, now);
  return recorder.finish();
}

Json detail_of(const RunRecord& record, const ReportLimits& limits = {}) {
  return Json::parse(report_detail(record, {}, limits));
}

// The requests whose prompts were computed in the steps that end within a stall.
std::set<std::int64_t> prefilled_during(const Json& detail, const Json& stall) {
  const Json& requests = detail["requests"];
  const Numbers ids = column(requests, "id", true);
  const Numbers rows = column(requests["prefills"], "row", true);
  const Numbers ends = column(requests["prefills"], "end", true);
  const auto began = stall["began"].get<std::int64_t>();
  std::set<std::int64_t> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (ends[i] <= began || ends[i] > began + stall["gap"].get<std::int64_t>()) continue;
    found.insert(ids[static_cast<std::size_t>(rows[i])]);
  }
  return found;
}

}  // namespace

TEST_CASE("integers become base64 VLQ", "[reports][html]") {
  const auto text_of = [](std::int64_t number) {
    VlqText text;
    text.append(number);
    return text.text();
  };
  CHECK(text_of(0) == "A");
  CHECK(text_of(1) == "C");
  CHECK(text_of(-1) == "D");
  CHECK(text_of(15) == "e");
  CHECK(text_of(16) == "gB");
  CHECK(text_of(-16) == "hB");
  CHECK(text_of(1000) == "w+B");
  VlqText deltas;
  const Numbers numbers = {5, 5, 1'000'000'007, -3, (std::int64_t{1} << 61) + 1, 0};
  for (const std::int64_t number : numbers) deltas.append_delta(number);
  CHECK(read_vlq(deltas.text(), true) == numbers);
}

TEST_CASE("of many points the extremes of every bucket stay", "[reports][html]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "extremes");
    const auto size = static_cast<std::size_t>(draw(rng, 1, 3000));
    const auto max_kept = static_cast<std::size_t>(draw(rng, 6, 800));
    std::vector<Numbers> values(3);
    std::vector<std::function<std::int64_t(std::size_t)>> series;
    for (Numbers& one : values) {
      for (std::size_t i = 0; i < size; ++i) one.push_back(draw(rng, -50, 50));
      series.emplace_back([&one](std::size_t i) { return one[i]; });
    }
    const std::vector<std::size_t> kept = keep_extremes(size, max_kept, series);
    CHECK(kept.size() == std::min(size, kept.size()));
    if (size <= max_kept) {
      CHECK(kept.size() == size);
      continue;
    }
    CHECK(kept.size() <= max_kept);
    CHECK(std::is_sorted(kept.begin(), kept.end()));
    CHECK(std::set(kept.begin(), kept.end()).size() == kept.size());
    const std::size_t num_buckets = max_kept / 6;
    for (const Numbers& one : values) {
      for (std::size_t b = 0; b < num_buckets; ++b) {
        const std::size_t begin = b * size / num_buckets;
        const std::size_t end = (b + 1) * size / num_buckets;
        Numbers all, some;
        for (std::size_t i = begin; i < end; ++i) all.push_back(one[i]);
        for (const std::size_t i : kept) {
          if (i >= begin && i < end) some.push_back(one[i]);
        }
        const auto [low, high] = std::minmax_element(all.begin(), all.end());
        const auto [kept_low, kept_high] = std::minmax_element(some.begin(), some.end());
        CHECK((*low == *kept_low && *high == *kept_high));
      }
    }
  }
}

TEST_CASE("a curve is exact where it has points, and has every one of the tail",
          "[reports][html]") {
  CHECK(distribution_curve({}).empty());
  CHECK(distribution_curve({{7, 2}, {3, 1}, {7, 1}, {5, 0}}) ==
        std::vector<CurvePoint>{{3, 1}, {7, 4}});
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "curve");
    std::map<TimeNs, std::int64_t> counts;
    std::vector<WeightedTime> sample;
    for (int i = 0; i < 20'000; ++i) {
      sample.push_back({draw(rng, 1, 1'000'000), draw(rng, 0, 30)});
      if (sample.back().count > 0) counts[sample.back().value_ns] += sample.back().count;
    }
    std::int64_t total = 0;
    std::map<TimeNs, std::int64_t> below;
    for (const auto& [value, count] : counts) below[value] = total += count;
    const std::vector<CurvePoint> curve = distribution_curve(sample);
    CHECK(curve.size() < 2500);
    std::set<TimeNs> kept;
    std::int64_t last = 0;
    for (const CurvePoint& point : curve) {
      CHECK(below.at(point.value_ns) == point.num_below);
      CHECK(point.num_below - last <= std::max<std::int64_t>(total / 350, 60));  // no wide hole
      last = point.num_below;
      kept.insert(point.value_ns);
    }
    CHECK(curve.back() == CurvePoint{counts.rbegin()->first, total});
    for (const auto& [value, num_below] : below) {
      if (total - num_below < 1000) CHECK(kept.count(value) == 1);
    }
  }
}

TEST_CASE("the report's columns of a small run are known", "[reports][html]") {
  const Json detail = detail_of(small_record());
  CHECK(detail["is_estimated"] == false);
  const Json& gaps = detail["gaps"];
  CHECK(column(gaps, "after", true) == Numbers{21'000, 62'000, 92'000, 107'000, 107'000});
  CHECK(column(gaps, "gap") == Numbers{11'000, 41'000, 30'000, 45'000, 15'000});
  CHECK(column(gaps, "count") == Numbers{2, 2, 1, 1, 2});
  CHECK(column(gaps, "request") == Numbers{0, 0, 0, 2, 0});
  CHECK(column(gaps, "decode") == Numbers{10'000, 11'000, 10'000, 12'000, 12'000});
  CHECK(column(gaps, "prefill") == Numbers{0, 29'000, 20'000, 20'000, 0});
  CHECK(column(gaps, "waiting") == Numbers{0, 0, 0, 10'000, 0});
  CHECK(column(gaps, "cause") == Numbers{0, 3, 3, 3, 0});
  CHECK(column(gaps, "cause_tokens") == Numbers{0, 4000, 2000, 2000, 0});
  const Json& steps = detail["steps"];
  CHECK(column(steps, "end", true) == Numbers{10'000, 21'000, 62'000, 92'000, 107'000});
  CHECK(column(steps, "time") == Numbers{10'000, 10'000, 40'000, 30'000, 12'000});
  CHECK(column(steps, "decode_time") == Numbers{0, 10'000, 11'000, 10'000, 12'000});
  CHECK(column(steps, "prefill") == Numbers{20, 0, 4000, 2000, 0});
  CHECK(column(steps, "decode", true) == Numbers{0, 2, 2, 1, 3});
  CHECK(column(steps, "blocks", true) == Numbers{2, 2, 3, 2, 3});
}

TEST_CASE("the report names the stalls and splits first tokens", "[reports][html]") {
  const Json detail = detail_of(small_record());
  const Json& stall = detail["stalls"][0];
  CHECK((stall["request"] == 1 && stall["began"] == 62'000 && stall["gap"] == 45'000));
  CHECK(stall["delayed"] == 3);
  CHECK(stall["prefill_tokens"] == 2000);
  CHECK(stall["chunk"] ==
        Json::parse(R"({"request": 2, "first_position": 4000, "tokens": 2000, "step": 3})"));
  CHECK(stall["parts"] == Json::parse(R"({"decode": 12000, "prefill": 20000, "host": 3000,
                                          "waiting": 10000, "preemption": 0})"));
  CHECK(detail["culprit_requests"][0]["request"] == 2);
  CHECK(detail["culprit_requests"][0]["total"] == 98'000);
  // c waited 2 ms for its admission, and 70 ms for both of its steps.
  const Json& parts = detail["ttft_parts"];
  CHECK(column(parts, "ttft") == Numbers{10'000, 10'000, 72'000});
  CHECK(column(parts, "queue") == Numbers{0, 0, 2'000});
  CHECK(column(parts, "own") == Numbers{10'000, 10'000, 70'000});
  const Json& requests = detail["requests"];
  CHECK(column(requests, "first") == Numbers{10'001, 10'001, 72'001});
  CHECK(column(requests["prefills"], "row", true) == Numbers{0, 1, 2, 2});
  CHECK(column(requests["prefills"], "tokens") == Numbers{10, 10, 4000, 2000});
  // Gaps of more than 25 ms: two of a, two of b.
  CHECK(column(requests["late"], "row", true) == Numbers{0, 0, 1, 1});
  CHECK(column(requests["late"], "time") == Numbers{41'000, 30'000, 41'000, 45'000});
}

TEST_CASE("the report's curves and gaps agree with the summary", "[reports][html]") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    INFO("seed " << seed);
    const RunRecord record = random_record(seed);
    const Summary summary = summarize(record, {});
    const Json detail = detail_of(record);
    const Numbers ns = column(detail["itl_curve"], "ns", true);
    const Numbers below = column(detail["itl_curve"], "below", true);
    REQUIRE(below.back() == summary.itl.count);
    CHECK(to_ms(ns.back()) == Approx(summary.itl.max_ms));
    CHECK(to_ms(ns.front()) >= summary.itl.min_ms);
    // Between the values at the ranks around it.
    const double rank = 0.99 * static_cast<double>(summary.itl.count - 1);
    const auto value_at = [&](std::int64_t r) {
      return to_ms(ns[static_cast<std::size_t>(std::upper_bound(below.begin(), below.end(), r) -
                                               below.begin())]);
    };
    CHECK(summary.itl.p99_ms >= value_at(static_cast<std::int64_t>(rank)) - 1e-9);
    CHECK(summary.itl.p99_ms <= value_at(static_cast<std::int64_t>(rank) + 1) + 1e-9);
    const Numbers counts = column(detail["gaps"], "count");
    CHECK(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == summary.itl.count);
    const Numbers sizes = column(detail["ttft_parts"], "size");
    CHECK(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == summary.completed);
    const Json& stall = detail["stalls"][0];
    CHECK(stall["gap"] == summary.longest_stall.gap_ns / 1000);
    CHECK(stall["request"] == index(summary.longest_stall.request));
    CHECK(stall["prefill_tokens"] == summary.longest_stall.num_prefill_tokens);
    if (!stall["chunk"].is_null()) {
      CHECK(stall["chunk"]["tokens"] == summary.longest_stall.prefill_tokens);
    }

    // Within limits, what is dropped are neither extremes nor sums.
    const Json thin = detail_of(record, {.max_gap_points = 60,
                                         .max_steps = 50,
                                         .max_requests = 20,
                                         .max_request_marks = 30,
                                         .max_stalls = 3});
    const Numbers few = column(thin["gaps"], "gap");
    const Numbers all = column(detail["gaps"], "gap");
    CHECK(few.size() <= 60);
    CHECK(*std::max_element(few.begin(), few.end()) == *std::max_element(all.begin(), all.end()));
    CHECK(thin["gaps"]["num_points"] == all.size());
    CHECK(column(thin["steps"], "end").size() <= 50);
    const Numbers drawn = column(thin["requests"], "id", true);
    CHECK(drawn.size() == 20);
    const std::set<std::int64_t> is_drawn(drawn.begin(), drawn.end());
    CHECK(is_drawn.size() == 20);
    CHECK(is_drawn.count(stall["request"].get<std::int64_t>()) == 1);
    for (const std::int64_t request : prefilled_during(detail, stall)) {
      CHECK(is_drawn.count(request) == 1);
    }
    CHECK(column(thin["requests"]["late"], "row").size() <= 30);
    CHECK(thin["stalls"].size() == 3);
    CHECK(thin["itl_curve"] == detail["itl_curve"]);
    // A coarser curve has fewer points of the same one, and the longest latency.
    const Json sketch = detail_of(record, sketch_limits(200));
    const Numbers coarse = column(sketch["itl_curve"], "ns", true);
    CHECK(coarse.size() < ns.size());
    CHECK(coarse.back() == ns.back());
    CHECK(std::includes(ns.begin(), ns.end(), coarse.begin(), coarse.end()));
    CHECK(report_detail(record, {}, {}) == report_detail(record, {}, {}));
  }
}

TEST_CASE("of many requests those computed around the longest stall are drawn", "[reports][html]") {
  const RunRecord record = late_stall();
  const auto drawn = [&record](std::size_t max_requests) {
    const Json detail = detail_of(record, {.max_requests = max_requests});
    CHECK((detail["stalls"][0]["request"] == 0 && detail["stalls"][0]["gap"] == 100'000));
    return column(detail["requests"], "id", true);
  };
  CHECK(drawn(1) == Numbers{0});
  CHECK(drawn(2) == Numbers{0, 39});
  CHECK(drawn(4) == Numbers{0, 38, 39, 40});
  CHECK(drawn(6) == Numbers{0, 37, 38, 39, 40, 41});
  CHECK(drawn(45).size() == 45);
}

TEST_CASE("a run without tokens has a report", "[reports][html]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  run.end(run.submit(5, 100), 6, EndReason::NeverFits);
  const Json detail = detail_of(recorder.finish());
  CHECK(column(detail["gaps"], "after").empty());
  CHECK(column(detail["requests"], "reason") ==
        Numbers{static_cast<std::int64_t>(EndReason::NeverFits)});
  CHECK(detail["stalls"].empty());
}

}  // namespace TEST_FILE
