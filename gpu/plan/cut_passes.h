// SPDX-License-Identifier: Apache-2.0
// Cuts a step into forward passes that fit the memory for activations.
#pragma once

#include <cstdint>

#include "core/engine/step_plan.h"

namespace metronome {

// Copies the chunks and passes of `plan` to `cut`. Cuts every pass of more than max_tokens tokens
// into several, in order. A chunk that does not fit continues in the next pass, and its last piece
// samples. All pieces have the chunk's kind. A decode with drafts stays whole. `cut` keeps its
// memory; of its other fields only step_index and admitted are set. Requires max_tokens >= 1, and
// room for every decode.
void cut_passes(const StepPlan& plan, std::int32_t max_tokens, StepPlan& cut);

}  // namespace metronome
