// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_executor.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/engine/padded_drafts.h"
#include "core/engine/request.h"
#include "sim/cost/pass_cost.h"

namespace metronome {

StepCost SimExecutor::cost_of(const StepPlan& plan) const {
  StepCost cost = cost_model_.step_cost(plan);
  if (step_scale_ == 1) return cost;
  for (TimeNs* part : {&cost.total_ns, &cost.decode_only_ns, &cost.draft_ns}) {
    *part = round_ns(static_cast<double>(*part) * step_scale_);
  }
  return cost;
}

// The device takes the step that the host planned at `now`.
StepTimes SimExecutor::take(const StepPlan& plan, TimeNs now, TimeNs& device_free_at) const {
  const StepCost cost = cost_of(plan);
  TimeNs encode_ns = 0;
  if (!plan.encodings.empty()) {
    METRONOME_CHECK(encoder_ != nullptr, "who plans images gives their cost");
    encode_ns = encoder_->time_ns(plan.encodings);
  }
  const TimeNs started_at = std::max(now + cost_model_.host_gap_ns(plan), device_free_at);
  device_free_at = started_at + encode_ns + cost.total_ns;
  return {.planned_at = now,
          .started_at = started_at,
          .finished_at = device_free_at,
          .decode_only_ns = cost.decode_only_ns,
          .draft_ns = cost.draft_ns,
          .encode_ns = encode_ns,
          .is_extrapolated = cost.is_extrapolated};
}

// Its result is the next to be launched.
void SimExecutor::note(std::int64_t step_index, const StepTimes& times) {
  METRONOME_CHECK(num_launched_ - num_collected_ < kMaxInFlight, "too many steps in flight");
  StepResult& result = results_[static_cast<std::size_t>(num_launched_ % kNumResults)];
  result.step_index = step_index;
  result.started_at = times.started_at;
  result.finished_at = times.finished_at;
  result.decode_only_ns = times.decode_only_ns;
  result.draft_ns = times.draft_ns;
  result.encode_ns = times.encode_ns;
  result.is_extrapolated = times.is_extrapolated;
  ++num_launched_;
}

void SimExecutor::launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) {
  requests_ = &requests;
  if (acceptance_ != nullptr) note_drafts(plan);
  has_repeats_ = false;
  note(plan.step_index, take(plan, now, device_free_at_));
}

void SimExecutor::note_drafts(const StepPlan& plan) {
  std::vector<Sample>& samples = samples_[static_cast<std::size_t>(num_launched_ % kMaxInFlight)];
  samples.clear();
  for (const ScheduledChunk& chunk : plan.chunks) {
    if (!chunk.samples_token) continue;
    samples.push_back({chunk.request, num_verified_drafts(plan, chunk),
                       (*requests_)[chunk.request].num_draft_tokens});
  }
}

void SimExecutor::draw_drafts(StepResult& result, const std::vector<Sample>& samples) const {
  result.num_accepted.clear();
  result.num_verified.clear();
  result.num_proposed.clear();
  for (const Sample& sample : samples) {
    const Request& request = (*requests_)[sample.request];
    // As in vLLM, drafts of a request that had ended do not count.
    const std::int32_t num_verified = request.has_ended() ? 0 : sample.num_verified;
    const std::int32_t place = request.num_output_tokens();
    const std::int32_t num_accepted =
        acceptance_->num_accepted(sample.request, place, num_verified, result.started_at);
    result.num_accepted.push_back(num_accepted);
    result.num_verified.push_back(num_verified);
    if (!acceptance_->limits_proposals()) continue;
    result.num_proposed.push_back(
        acceptance_->num_proposed(sample.request, place + num_accepted + 1, sample.num_next));
  }
}

void SimExecutor::begin_repeats(const StepPlan& plan, TimeNs now) {
  if (has_repeats_) return;
  has_repeats_ = true;
  repeats_.clear();
  members_ = *plan.run.members;
  repeated_ = plan;
  repeated_.run.members = &members_;
  planned_next_ = now;
  repeats_end_ = device_free_at_;
}

void SimExecutor::add_repeat() {
  members_.take_steps(1);
  ++repeated_.step_index;
  const TimeNs last_end = repeats_end_;
  repeats_.push_back(take(repeated_, planned_next_, repeats_end_));
  planned_next_ = num_launched_ > num_collected_ ? last_end : repeats_end_;
}

TimeNs SimExecutor::end_of_repeats(const StepPlan& plan, TimeNs now, std::size_t num_steps) {
  begin_repeats(plan, now);
  while (repeats_.size() < num_steps) add_repeat();
  return repeats_[num_steps - 1].finished_at;
}

std::size_t SimExecutor::launch_repeats(const StepPlan& plan, TimeNs now, TimeNs until,
                                        TimeNs horizon, std::span<StepTimes> times) {
  const bool overlaps = num_launched_ > num_collected_;
  begin_repeats(plan, now);
  std::size_t num_steps = 0;
  TimeNs planned_at = now;
  // With a step in flight, each of these is planned beside one that is to end before the horizon.
  const auto may_plan = [&] {
    return planned_at < until && (!overlaps || device_free_at_ < horizon);
  };
  while (num_steps < times.size() && may_plan()) {
    if (num_steps == repeats_.size()) add_repeat();
    times[num_steps] = repeats_[num_steps];
    planned_at = overlaps ? device_free_at_ : times[num_steps].finished_at;
    device_free_at_ = times[num_steps].finished_at;
    ++num_steps;
  }
  has_repeats_ = false;
  const bool lasts = overlaps || device_free_at_ >= horizon;
  if (lasts && num_steps > 0) {
    note(plan.step_index + static_cast<std::int64_t>(num_steps), times[num_steps - 1]);
  }
  return num_steps;
}

const StepResult& SimExecutor::collect() {
  METRONOME_CHECK(num_collected_ < num_launched_, "no step is in flight");
  StepResult& result = results_[static_cast<std::size_t>(num_collected_ % kNumResults)];
  if (acceptance_ != nullptr) {
    draw_drafts(result, samples_[static_cast<std::size_t>(num_collected_ % kMaxInFlight)]);
  }
  ++num_collected_;
  return result;
}

}  // namespace metronome
