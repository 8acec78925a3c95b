// SPDX-License-Identifier: Apache-2.0
// Kinds of steps. A kind groups steps whose times depend on the same quantities: what they compute,
// and ranges of token counts. These use them:
//
//   policies/step_correction      decodes alone; with a prompt: doubling ranges of prompt tokens
//   core/metrics/step_regime      decodes alone: doubling ranges; prompts alone; both
//     through it: sim/fitted and sim/step_noise (scatter), sim/fitted and reports/compare (errors)
//   sim/corrected                 decodes alone, and with a prompt: ranges that a file names
//   study/recorded/pinned_steps   decodes alone, and with a prompt: even ranges of all tokens
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace metronome {

enum class StepPhase : std::uint8_t { Decode, Prefill, Mixed };

// The tokens that a step computes.
struct StepTokens {
  std::int64_t prefill = 0;  // tokens of prompt chunks
  std::int64_t decode = 0;

  std::int64_t all() const { return prefill + decode; }
  bool has_prompt() const { return prefill > 0; }
  StepPhase phase() const {
    if (decode == 0) return StepPhase::Prefill;
    return prefill > 0 ? StepPhase::Mixed : StepPhase::Decode;
  }
};

// The tokens of a StepPlan, or of any type with its counts.
template <typename Step>
StepTokens tokens_of(const Step& step) {
  return {step.num_prefill_tokens, step.num_decode_tokens};
}

// Range 0 has counts up to `first`. Range k has counts above first x 2^(k-1), up to first x 2^k.
constexpr std::size_t doubling_range(std::int64_t count, std::int64_t first) {
  if (count <= first) return 0;
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>((count - 1) / first)));
}
// Range k has counts in [k x width, (k + 1) x width).
constexpr std::size_t even_range(std::int64_t count, std::int64_t width) {
  return static_cast<std::size_t>(count / width);
}

}  // namespace metronome
