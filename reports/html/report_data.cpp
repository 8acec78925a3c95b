// SPDX-License-Identifier: Apache-2.0
#include "reports/html/report_data.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/metrics/gap_analysis.h"
#include "core/metrics/summary.h"
#include "reports/html/report_columns.h"

namespace metronome {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// A gap between two tokens, or the equal gaps of all requests that decoded through a step.
struct GapPoint {
  TokenGap gap;
  std::int64_t num_gaps = 0;
};

std::vector<GapPoint> gap_points(const RunRecord& record) {
  std::vector<GapPoint> points;
  const auto finished_at = [&](std::int32_t step) {
    return record.steps.finished_at(static_cast<std::size_t>(step));
  };
  for (std::size_t s = 1; s < record.steps.size(); ++s) {
    const auto step = static_cast<std::int32_t>(s);
    const std::int32_t num_gaps = record.steps.num_continued(s);
    if (num_gaps == 0) continue;
    points.push_back(
        {{kNoRequest, step - 1, step, finished_at(step) - finished_at(step - 1)}, num_gaps});
  }
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const auto runs = record.runs_of(i);
    for (std::size_t r = 1; r < runs.size(); ++r) {
      const std::int32_t before = runs[r - 1].last_step();
      const std::int32_t after = runs[r].first_step;
      const auto request = static_cast<RequestId>(i);
      points.push_back({{request, before, after, finished_at(after) - finished_at(before)}, 1});
    }
  }
  std::sort(points.begin(), points.end(), [](const GapPoint& a, const GapPoint& b) {
    return a.gap.step_after != b.gap.step_after ? a.gap.step_after < b.gap.step_after
                                                : a.gap.request < b.gap.request;
  });
  if (!record.replicas.empty()) {  // by time, as steps of one engine are
    std::stable_sort(points.begin(), points.end(), [&](const GapPoint& a, const GapPoint& b) {
      return finished_at(a.gap.step_after) < finished_at(b.gap.step_after);
    });
  }
  return points;
}

void append_curve(std::string_view name, std::vector<WeightedTime> sample, std::size_t divisor,
                  JsonText& json) {
  VlqText values, below;
  for (const CurvePoint& point : distribution_curve(std::move(sample), divisor)) {
    values.append_delta(point.value_ns);
    below.append_delta(point.num_below);
  }
  json.key(name);
  json.begin_object();
  json.field("ns", values.text());
  json.field("below", below.text());
  json.end_object();
}

template <class Get>
std::vector<WeightedTime> completed_times(const RunRecord& record, Get get) {
  std::vector<WeightedTime> sample;
  for (const RequestRecord& request : record.requests) {
    if (request.completed() && request.first_token != kNoTime) sample.push_back({get(request), 1});
  }
  return sample;
}

}  // namespace

void VlqText::append(std::int64_t number) {
  std::uint64_t bits = number < 0 ? (static_cast<std::uint64_t>(-number) << 1) | 1u
                                  : static_cast<std::uint64_t>(number) << 1;
  do {
    const std::uint64_t digit = (bits & 31u) | (bits > 31u ? 32u : 0u);
    text_ += kDigits[digit];
    bits >>= 5;
  } while (bits > 0);
}

ReportLimits report_limits(std::size_t num_runs) {
  ReportLimits limits;
  const std::size_t shares = std::max<std::size_t>(num_runs, 1);
  if (shares > 1) limits.max_gap_points = 160'000 / shares;
  limits.max_steps = std::min<std::size_t>(limits.max_steps, 80'000 / shares);
  limits.max_requests = std::min<std::size_t>(limits.max_requests, 8'000 / shares);
  limits.max_request_marks = std::min<std::size_t>(limits.max_request_marks, 80'000 / shares);
  return limits;
}

ReportLimits sketch_limits(std::size_t num_runs) {
  const std::size_t shares = std::max<std::size_t>(num_runs, 1);
  ReportLimits limits;
  limits.max_gap_points = std::clamp<std::size_t>(24'000 / shares, 40, 2'000);
  limits.max_steps = std::clamp<std::size_t>(14'000 / shares, 40, 1'000);
  limits.max_requests = std::clamp<std::size_t>(2'000 / shares, 10, 200);
  limits.max_request_marks = std::clamp<std::size_t>(10'000 / shares, 20, 1'000);
  limits.max_stalls = std::clamp<std::size_t>(1'000 / shares, 3, 8);
  limits.curve_divisor = 20;
  return limits;
}

std::vector<std::size_t> keep_extremes(
    std::size_t size, std::size_t max_kept,
    std::span<const std::function<std::int64_t(std::size_t)>> series) {
  std::vector<std::size_t> kept;
  if (size <= max_kept) {
    for (std::size_t i = 0; i < size; ++i) kept.push_back(i);
    return kept;
  }
  const std::size_t num_buckets = std::max<std::size_t>(1, max_kept / (2 * series.size()));
  std::vector<std::size_t> chosen;
  for (std::size_t b = 0; b < num_buckets; ++b) {
    const std::size_t begin = b * size / num_buckets;
    const std::size_t end = (b + 1) * size / num_buckets;
    chosen.clear();
    for (const auto& value : series) {
      std::size_t least = begin;
      std::size_t greatest = begin;
      for (std::size_t i = begin + 1; i < end; ++i) {
        if (value(i) < value(least)) least = i;
        if (value(i) > value(greatest)) greatest = i;
      }
      chosen.insert(chosen.end(), {least, greatest});
    }
    std::sort(chosen.begin(), chosen.end());
    kept.insert(kept.end(), chosen.begin(), std::unique(chosen.begin(), chosen.end()));
  }
  return kept;
}

std::vector<CurvePoint> distribution_curve(std::vector<WeightedTime> sample, std::size_t divisor) {
  const auto exact_tail = static_cast<std::int64_t>(1'000 / divisor);
  const double per_decade = 100.0 / static_cast<double>(divisor);
  std::erase_if(sample, [](const WeightedTime& v) { return v.count == 0; });
  std::sort(sample.begin(), sample.end(),
            [](const WeightedTime& a, const WeightedTime& b) { return a.value_ns < b.value_ns; });
  std::int64_t total = 0;
  for (const WeightedTime& value : sample) total += value.count;
  // The cell of a share of greater values: equal steps over the whole range and over its logarithm.
  const auto cells = [total, per_decade](std::int64_t num_below) {
    const double above = static_cast<double>(total - num_below) / static_cast<double>(total);
    const double tail = above > 0 ? std::floor(-per_decade * std::log10(above)) : 1e9;
    return std::array<double, 2>{std::floor(4 * per_decade * above), tail};
  };
  std::vector<CurvePoint> curve;
  std::int64_t num_below = 0;
  std::array<double, 2> last_cells = {-1, -1};
  for (std::size_t i = 0; i < sample.size(); ++i) {
    num_below += sample[i].count;
    if (i + 1 < sample.size() && sample[i + 1].value_ns == sample[i].value_ns) continue;
    const std::array<double, 2> now = cells(num_below);
    const bool is_tail = total - num_below < exact_tail;
    if (curve.empty() || is_tail || now != last_cells) {
      curve.push_back({sample[i].value_ns, num_below});
    } else {
      curve.back() = {sample[i].value_ns, num_below};  // the last of its cell
    }
    last_cells = now;
  }
  return curve;
}

void append_curves(const RunRecord& record, const ReportLimits& limits, JsonText& json) {
  const auto append = [&](std::string_view name, std::vector<WeightedTime> sample) {
    append_curve(name, std::move(sample), limits.curve_divisor, json);
  };
  append("itl_curve", pooled_gaps(record));
  const auto ttft = [](const RequestRecord& r) { return r.ttft_ns(); };
  const auto e2el = [](const RequestRecord& r) { return r.e2el_ns(); };
  append("ttft_curve", completed_times(record, ttft));
  append("e2el_curve", completed_times(record, e2el));
}

void append_gaps(const RunRecord& record, const GapAnalysis& analysis, const ReportLimits& limits,
                 JsonText& json) {
  const std::vector<GapPoint> points = gap_points(record);
  const std::function<std::int64_t(std::size_t)> series[] = {
      [&](std::size_t i) { return points[i].gap.gap_ns; }};
  const std::vector<std::size_t> kept = keep_extremes(points.size(), limits.max_gap_points, series);
  VlqText after, gap_us, num_gaps, request, decode, drafts, encode, prefill, waiting, cause,
      cause_tokens;
  for (const std::size_t i : kept) {
    const auto& [gap, count] = points[i];
    const StepEntry& step = record.steps[static_cast<std::size_t>(gap.step_after)];
    const GapParts parts = analysis.parts(gap);
    after.append_delta(to_us(step.finished_at));
    gap_us.append(to_us(gap.gap_ns));
    num_gaps.append(count);
    request.append(gap.request == kNoRequest ? 0
                                             : static_cast<std::int64_t>(index(gap.request)) + 1);
    decode.append(to_us(parts.decode_ns));
    drafts.append(to_us(parts.draft_ns));
    encode.append(to_us(parts.encode_ns));
    prefill.append(to_us(parts.prefill_ns));
    waiting.append(parts.preemption_ns > 0 ? -to_us(parts.preemption_ns) : to_us(parts.waiting_ns));
    PrefillChunk chunk;
    if (const Culprit worst = analysis.worst_chunk(gap); worst.chunk >= 0) {
      chunk = record.prefills[static_cast<std::size_t>(worst.chunk)];
    }
    cause.append(chunk.num_tokens == 0 ? 0 : static_cast<std::int64_t>(index(chunk.request)) + 1);
    cause_tokens.append(chunk.num_tokens);
  }
  json.key("gaps");
  json.begin_object();
  json.field("num_points", points.size());
  json.field("num_kept", kept.size());
  json.field("after", after.text());
  json.field("gap", gap_us.text());
  json.field("count", num_gaps.text());
  json.field("request", request.text());  // + 1; 0: several
  json.field("decode", decode.text());
  if (record.drafts.num_drafts > 0) json.field("drafts", drafts.text());
  if (record.has_encodings) json.field("encode", encode.text());
  json.field("prefill", prefill.text());
  json.field("waiting", waiting.text());  // negative: preempted
  json.field("cause", cause.text());      // request of the worst chunk + 1; 0: none
  json.field("cause_tokens", cause_tokens.text());
  json.end_object();
}

void append_steps(const RunRecord& record, const GapAnalysis& analysis, const ReportLimits& limits,
                  JsonText& json) {
  StepRange range = {0, record.has_steps() ? record.steps.size() : 0};
  if (!record.replicas.empty()) range.end = record.replicas.front().end_step();
  json.key("steps");
  append_steps_of(record, analysis, range, device_times(record), limits.max_steps, json);
}

void append_steps_of(const RunRecord& record, const GapAnalysis& analysis, const StepRange& range,
                     std::span<const TimeNs> times, std::size_t max_steps, JsonText& json) {
  const StepHistory& steps = record.steps;
  const std::size_t first = range.begin;
  const std::function<std::int64_t(std::size_t)> series[] = {
      [&](std::size_t i) { return steps.num_tokens(first + i); },
      [&](std::size_t i) { return times[first + i]; },
      [&](std::size_t i) { return steps.num_used_blocks(first + i); },
      [&](std::size_t i) { return steps.num_waiting(first + i); },
      [&](std::size_t i) { return steps.num_running(first + i); },
  };
  const std::size_t num_steps = range.end - range.begin;
  const std::vector<std::size_t> kept = keep_extremes(num_steps, max_steps, series);
  VlqText position, end, time, decode_time, prefill, decode, running, waiting, blocks, preempted;
  std::int64_t num_preempted = 0;  // up to each step, so that dropped steps still count
  std::size_t next = first;
  for (const std::size_t place : kept) {
    const std::size_t i = first + place;
    for (; next <= i; ++next) num_preempted += steps.num_preempted(next);
    position.append_delta(static_cast<std::int64_t>(i));
    end.append_delta(to_us(steps.finished_at(i)));
    time.append(to_us(times[i]));
    decode_time.append(to_us(analysis.decode_ns(static_cast<std::int32_t>(i))));
    prefill.append(steps.num_prefill_tokens(i));
    decode.append_delta(steps.num_decode_tokens(i));
    running.append_delta(steps.num_running(i));
    waiting.append_delta(steps.num_waiting(i));
    blocks.append_delta(steps.num_used_blocks(i));
    preempted.append_delta(num_preempted);
  }
  json.begin_object();
  json.field("num_points", num_steps);
  json.field("num_kept", kept.size());
  json.field("position", position.text());
  json.field("end", end.text());
  json.field("time", time.text());
  json.field("decode_time", decode_time.text());
  json.field("prefill", prefill.text());
  json.field("decode", decode.text());
  json.field("running", running.text());
  json.field("waiting", waiting.text());
  json.field("blocks", blocks.text());
  json.field("preempted", preempted.text());
  json.end_object();
}

std::string report_detail(const RunRecord& record, const SloConfig& slo,
                          const ReportLimits& limits) {
  const GapAnalysis analysis(record);
  JsonText json;
  json.begin_object();
  if (!record.has_steps()) json.field("has_steps", false);
  json.field("is_estimated", analysis.is_estimated());
  append_curves(record, limits, json);
  append_gaps(record, analysis, limits, json);
  append_steps(record, analysis, limits, json);
  append_replicas(record, analysis, limits, json);
  append_stalls(record, analysis, limits, json);
  append_requests(record, analysis, slo, limits, json);
  append_ttft_parts(record, json);
  json.end_object();
  return std::string(json.view());
}

}  // namespace metronome
