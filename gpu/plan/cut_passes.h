// A step in forward passes that the memory for activations has room for.
#pragma once

#include <cstdint>

#include "core/engine/step_plan.h"

namespace metronome {

// Copies the chunks and passes of `plan` to `cut`, with every pass of more than max_tokens tokens
// cut into several, in order: a chunk that does not fit goes on in the next pass, and samples with
// its last piece. Pieces of one chunk have its kind. `cut` keeps its memory; of its other fields
// only step_index is set. Requires max_tokens >= 1.
void cut_passes(const StepPlan& plan, std::int32_t max_tokens, StepPlan& cut);

}  // namespace metronome
