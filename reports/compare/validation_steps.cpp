// SPDX-License-Identifier: Apache-2.0
// Compares the decisions and step times of two runs.
#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <tuple>

#include "core/metrics/gap_analysis.h"
#include "core/metrics/recorded_steps.h"
#include "reports/compare/validation.h"

namespace metronome {
namespace {

using Row = std::tuple<ChunkKind, RequestId, std::int32_t, std::int32_t>;

void rows_of(const StepPlan& plan, std::vector<Row>& rows) {
  rows.clear();
  for (const ScheduledChunk& chunk : plan.chunks) {
    rows.emplace_back(chunk.kind, chunk.request, chunk.first_position, chunk.num_tokens);
  }
  std::sort(rows.begin(), rows.end());
}

// The chunks in `own` that are not in `other`, and the number of chunks in both.
std::string text_of(const std::vector<Row>& own, const std::vector<Row>& other) {
  std::vector<Row> rows;
  std::set_difference(own.begin(), own.end(), other.begin(), other.end(), std::back_inserter(rows));
  std::string text;
  constexpr std::size_t kMaxShown = 4;
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxShown); ++i) {
    const auto& [kind, request, position, num_tokens] = rows[i];
    text += text.empty() ? "" : ", ";
    text += fmt::format("request {}", index(request));
    text += kind == ChunkKind::Decode ? fmt::format(" decodes at {}", position)
                                      : fmt::format(" prefills {} from {}", num_tokens, position);
  }
  if (rows.size() > kMaxShown) text += fmt::format(", {} more", rows.size() - kMaxShown);
  const std::size_t num_shared = own.size() - rows.size();
  if (text.empty()) return fmt::format("{} chunks, all also in the other run", num_shared);
  if (num_shared > 0) text += fmt::format(", and {} chunks as in the other run", num_shared);
  return text;
}

struct TokenEvent {
  TimeNs time = 0;
  std::int32_t step = 0;
  std::size_t request = 0;
  const char* what = "";
};

std::string event_text(const TokenEvent& event) {
  return fmt::format("{} token of request {} (step {})", event.what, event.request, event.step);
}

}  // namespace

DecisionComparison compare_decisions(const RunRecord& measured, StepShape measured_shape,
                                     const RunRecord& simulated, StepShape simulated_shape) {
  DecisionComparison comparison;
  comparison.num_steps_measured = static_cast<std::int64_t>(measured.steps.size());
  comparison.num_steps_simulated = static_cast<std::int64_t>(simulated.steps.size());
  RecordedSteps steps_a(measured, measured_shape);
  RecordedSteps steps_b(simulated, simulated_shape);
  StepPlan a;
  StepPlan b;
  std::vector<Row> rows_a;
  std::vector<Row> rows_b;
  while (true) {
    const bool has_a = steps_a.next(a);
    const bool has_b = steps_b.next(b);
    if (!has_a && !has_b) return comparison;
    has_a ? rows_of(a, rows_a) : rows_a.clear();
    has_b ? rows_of(b, rows_b) : rows_b.clear();
    const bool is_equal = has_a && has_b && rows_a == rows_b &&
                          steps_a.num_missing_decodes() == steps_b.num_missing_decodes();
    if (!is_equal) {
      comparison.first_difference = {comparison.num_equal,
                                     has_a ? text_of(rows_a, rows_b) : std::string(),
                                     has_b ? text_of(rows_b, rows_a) : std::string()};
      return comparison;
    }
    ++comparison.num_equal;
  }
}

TimestampComparison compare_timestamps(const ObservedRun& log, const RunRecord& record) {
  std::vector<TokenEvent> events;
  for (std::size_t i = 0; i < std::min(log.requests.size(), record.requests.size()); ++i) {
    const auto runs = record.runs_of(i);
    if (runs.empty()) continue;
    events.push_back({log.requests[i].first_token, runs.front().first_step, i, "first"});
    events.push_back({log.requests[i].last_token, runs.back().last_step(), i, "last"});
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const TokenEvent& a, const TokenEvent& b) { return a.time < b.time; });
  TimestampComparison comparison;
  comparison.num_timestamps = static_cast<std::int64_t>(events.size());
  constexpr std::size_t kMaxTexts = 10;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto is_with = [&](std::size_t j) {
      return j < events.size() && events[j].time == events[i].time;
    };
    if (is_with(i + 1) || (i > 0 && is_with(i - 1))) ++comparison.num_linked;
    if (i == 0) continue;
    const bool is_together = is_with(i - 1);
    const bool agrees =
        is_together ? events[i].step == events[i - 1].step : events[i].step > events[i - 1].step;
    if (agrees) continue;
    ++comparison.num_violated;
    if (comparison.violations.size() == kMaxTexts) continue;
    comparison.violations.push_back(event_text(events[i]) +
                                    (is_together ? " came with the " : " came after the ") +
                                    event_text(events[i - 1]));
  }
  return comparison;
}

std::vector<RegimeError> compare_step_times(const RunRecord& measured, StepShape shape,
                                            StepTimePredictor& predictor, std::size_t num_steps) {
  RegimeErrors errors;
  const std::vector<TimeNs> times = device_times(measured);
  RecordedSteps steps(measured, shape);
  StepPlan plan;
  while (steps.next(plan) && steps.position() < num_steps) {
    const std::size_t at = steps.position();
    const bool is_whole = steps.num_missing_decodes() == 0 && !measured.steps[at].failed;
    if (!is_whole || times[at] <= 0) continue;
    errors.add(step_regime(tokens_of(plan)), static_cast<double>(times[at]),
               static_cast<double>(predictor.step_ns(plan)), static_cast<std::int64_t>(at));
  }
  return errors.summaries();
}

}  // namespace metronome
