// SPDX-License-Identifier: Apache-2.0
#include "core/engine/policies/held_prompts.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/base/number_text.h"

namespace metronome {

void HeldPrompts::begin_plan(std::int64_t step_index) {
  if (is_held_) num_held_ += step_index - last_step_;
  last_step_ = step_index;
  is_held_ = false;
}

void HeldPrompts::note(std::int32_t num_prompt_tokens) {
  is_held_ = true;
  longest_ = std::max(longest_, num_prompt_tokens);
}

std::string HeldPrompts::remark(std::string_view budget_key, std::string_view chunks_key,
                                std::int64_t max_num_seqs) const {
  if (num_held_ == 0 || num_held_ < last_step_ / 100) return {};
  return fmt::format(
      "in {} of {} steps a prompt waited only because whole prompts must fit beside the decodes, "
      "as in the engine; set scheduler.{}: true, or scheduler.{} to {} or more",
      grouped_text(num_held_), grouped_text(last_step_), chunks_key, budget_key,
      longest_ + max_num_seqs - 1);
}

}  // namespace metronome
