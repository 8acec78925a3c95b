// SPDX-License-Identifier: Apache-2.0
#include "sim/micro_batches.h"

#include <algorithm>

namespace metronome {

// The plan's chunks in pieces, so that each pass has whole ones.
void MicroBatches::cut(const StepPlan& plan) {
  cut_ = plan;
  cut_.chunks.clear();
  cut_.passes.clear();
  cut_.run.place = 0;
  std::int64_t room = pass_tokens_ - plan.run.num_decodes;
  std::int32_t begin = 0;  // of the open pass
  const auto end = [this] { return static_cast<std::int32_t>(cut_.num_chunks()); };
  const auto close = [&] {
    if (end() > begin) cut_.passes.push_back({begin, end()});
    begin = end();
    room = pass_tokens_;
  };
  for (ScheduledChunk rest : plan.chunks) {
    const bool samples = rest.samples_token;
    while (rest.num_tokens > 0) {
      if (room <= 0) close();
      ScheduledChunk piece = rest;
      piece.num_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(rest.num_tokens, room));
      piece.samples_token = samples && piece.num_tokens == rest.num_tokens;
      cut_.chunks.push_back(piece);
      room -= piece.num_tokens;
      rest.first_position += piece.num_tokens;
      rest.num_tokens -= piece.num_tokens;
    }
  }
  close();
}

StepCost MicroBatches::step_cost(const StepPlan& plan) {
  if (plan.num_tokens() <= pass_tokens_) return passes_->step_cost(plan);
  cut(plan);
  return passes_->step_cost(cut_);
}

}  // namespace metronome
