// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/recorded_steps.h"

#include <algorithm>
#include <tuple>

namespace metronome {

RecordedSteps::RecordedSteps(const RunRecord& record, StepShape shape)
    : record_(record),
      shape_(shape),
      num_outputs_(record.requests.size()),
      num_counts_(record.requests.size()) {
  starts_.reserve(record.runs.size());
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    for (const TokenRun& run : record.runs_of(i)) {
      starts_.push_back({run.first_step, run.last_step(), static_cast<RequestId>(i)});
    }
  }
  std::stable_sort(starts_.begin(), starts_.end(),
                   [](const Start& a, const Start& b) { return a.first_step < b.first_step; });
}

bool RecordedSteps::next(StepPlan& plan) {
  if (next_step_ == record_.steps.size()) return false;
  const StepEntry& step = record_.steps[next_step_];
  plan.step_index = static_cast<std::int64_t>(next_step_);
  plan.planned_at = step.planned_at;
  plan.chunks.clear();
  plan.passes.clear();
  find_prefills(step);
  add_decodes(static_cast<std::int32_t>(next_step_), plan);
  const std::int32_t num_decodes = step.num_decode_tokens - step.num_draft_tokens;
  const auto num_listed = static_cast<std::int32_t>(plan.chunks.size());
  num_missing_ = num_decodes - num_listed;
  add_drafts(step.num_draft_tokens, num_decodes, plan);
  plan.chunks.insert(plan.chunks.end(), prefills_.begin(), prefills_.end());
  plan.num_prefill_tokens = step.num_prefill_tokens;
  const auto num_chunks = static_cast<std::int32_t>(plan.chunks.size());
  const std::int32_t num_first = shape_ == StepShape::Separate ? num_listed : 0;
  if (num_first > 0) plan.passes.push_back({0, num_first});
  if (num_first < num_chunks) plan.passes.push_back({num_first, num_chunks});
  plan.num_running = step.num_running;
  plan.num_waiting = step.num_waiting;
  plan.num_used_blocks = step.num_used_blocks;
  plan.num_preempted = static_cast<std::int32_t>(step.num_preempted);
  std::erase_if(active_, [this](const Start& run) {
    return run.last_step == static_cast<std::int32_t>(next_step_);
  });
  ++next_step_;
  return true;
}

void RecordedSteps::find_prefills(const StepEntry& step) {
  prefills_.clear();
  for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
    const PrefillChunk& chunk =
        record_.prefills[static_cast<std::size_t>(step.first_prefill_chunk + c)];
    const std::size_t i = index(chunk.request);
    const std::int32_t num_known = record_.requests[i].num_prompt_tokens + num_outputs_[i];
    prefills_.push_back({.request = chunk.request,
                         .first_position = chunk.first_position,
                         .num_tokens = chunk.num_tokens,
                         .kind = ChunkKind::Prefill,
                         .samples_token = chunk.end_position() == num_known});
  }
}

// A token came from the last chunk of a prompt, if there is one, else from a decode. If both occur
// in one step, they are two runs of their request, in this order.
void RecordedSteps::add_decodes(std::int32_t step, StepPlan& plan) {
  for (; next_start_ < starts_.size() && starts_[next_start_].first_step == step; ++next_start_) {
    active_.push_back(starts_[next_start_]);
  }
  for (const Start& run : active_) {
    const std::size_t i = index(run.request);
    std::uint8_t num_tokens = 1;
    const auto prefill =
        std::find_if(prefills_.begin(), prefills_.end(), [&](const ScheduledChunk& chunk) {
          return chunk.request == run.request && chunk.samples_token && chunk.num_emitted == 0;
        });
    if (prefill != prefills_.end()) {
      prefill->num_emitted = next_count(i);
    } else {
      num_tokens = next_count(i);
      plan.chunks.push_back(
          {.request = run.request,
           .first_position = record_.requests[i].num_prompt_tokens + num_outputs_[i] - 1,
           .num_tokens = 1,
           .kind = ChunkKind::Decode,
           .samples_token = true,
           .num_emitted = num_tokens});
    }
    num_outputs_[i] += num_tokens;
  }
}

std::uint8_t RecordedSteps::next_count(std::size_t request) {
  const std::span<const std::uint8_t> counts = record_.counts_of(request);
  return counts.empty() ? 1 : counts[num_counts_[request]++];
}

// `num_decodes` are those of the step, also those that the plan omits.
void RecordedSteps::add_drafts(std::int32_t num_drafts, std::int32_t num_decodes, StepPlan& plan) {
  plan.num_decode_tokens = static_cast<std::int32_t>(plan.chunks.size());
  if (num_drafts == 0 || num_decodes <= 0) return;
  std::int32_t place = 0;
  for (ScheduledChunk& chunk : plan.chunks) {
    const std::int32_t num_more =
        num_drafts / num_decodes + (place < num_drafts % num_decodes ? 1 : 0);
    chunk.num_tokens += num_more;
    plan.num_decode_tokens += num_more;
    ++place;
  }
}

}  // namespace metronome
