// SPDX-License-Identifier: Apache-2.0
#include "study/recorded/pinned_executor.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace metronome {
namespace {

// The maximum distance of a hint from the predicted end of a step. It is less than half a step, so
// a hint of a neighbouring step or of a decode beside a long prefill is not used.
constexpr double kHintReach = 0.45;
constexpr TimeNs kMaxHintNs = 13 * kNsPerMs;

}  // namespace

PinnedExecutor::PinnedExecutor(CostModel& cost_model, const std::vector<TokenInstants>& instants,
                               const std::vector<TimeNs>& hints, const std::vector<double>& scales)
    : cost_model_(cost_model), instants_(instants), hints_(hints), scales_(scales) {}

void PinnedExecutor::launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) {
  METRONOME_CHECK(num_launched_ - num_collected_ < kMaxInFlight, "too many steps in flight");
  PinnedStep step;
  step.predicted = cost_model_.step_cost(plan);
  step.cost = step.predicted.total_ns;
  step.num_prefill_tokens = plan.num_prefill_tokens;
  step.num_decode_tokens = plan.num_decode_tokens;
  const TimeNs earliest = now + cost_model_.host_gap_ns(plan);
  step.started_at = std::max(earliest, device_free_at_);
  step.is_after_idle =
      num_launched_ == 0 || (num_launched_ == num_collected_ && now > device_free_at_);
  find_pin(plan, requests, step);

  if (!step.is_after_idle) step.cost += step.started_at - device_free_at_;
  const double scale = steps_.size() < scales_.size() ? scales_[steps_.size()] : 1.0;
  const auto duration = static_cast<TimeNs>(std::llround(static_cast<double>(step.cost) * scale));
  TimeNs end = std::max((step.is_after_idle ? step.started_at : device_free_at_) + duration,
                        step.started_at);
  if (step.is_pinned()) {
    end = std::max(step.earliest, step.started_at);
  } else if (const TimeNs hint = near_hint(end, duration); hint != kNoTime) {
    end = std::max(hint, step.started_at);
  }
  StepResult& result = results_[static_cast<std::size_t>(num_launched_ % kNumResults)];
  result.step_index = plan.step_index;
  result.started_at = step.started_at;
  result.finished_at = end;
  result.decode_only_ns = kNoTime;
  result.is_extrapolated = !step.is_pinned();
  device_free_at_ = end;
  steps_.push_back(step);
  ++num_launched_;
}

const StepResult& PinnedExecutor::collect() {
  METRONOME_CHECK(num_collected_ < num_launched_, "no step is in flight");
  return results_[static_cast<std::size_t>(num_collected_++ % kNumResults)];
}

void PinnedExecutor::find_pin(const StepPlan& plan, const RequestTable& requests,
                              PinnedStep& step) const {
  for (const ScheduledChunk& chunk : plan.chunks) {
    if (!chunk.samples_token) continue;
    const Request& request = requests[chunk.request];
    const TokenInstants& instants = instants_[index(chunk.request)];
    const std::int32_t output = chunk.end_position() - request.num_prompt_tokens;  // index, from 0
    TimeNs instant = kNoTime;
    if (output == 0) instant = instants.first_token;
    if (output == request.max_output_tokens - 1) instant = instants.last_token;
    if (instant == kNoTime) continue;
    if (!step.is_pinned() || instant < step.earliest) {
      step.earliest = instant;
      step.request = chunk.request;
    }
    step.latest = std::max(step.latest, instant);
  }
}

TimeNs PinnedExecutor::near_hint(TimeNs end, TimeNs duration) const {
  const auto reach =
      std::min(static_cast<TimeNs>(kHintReach * static_cast<double>(duration)), kMaxHintNs);
  const auto above = std::lower_bound(hints_.begin(), hints_.end(), end);
  TimeNs best = kNoTime;
  if (above != hints_.end() && *above - end < reach) best = *above;
  if (above != hints_.begin() && end - *(above - 1) < reach &&
      (best == kNoTime || end - *(above - 1) < best - end)) {
    best = *(above - 1);
  }
  return best;
}

}  // namespace metronome
