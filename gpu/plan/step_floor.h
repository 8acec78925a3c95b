// SPDX-License-Identifier: Apache-2.0
// The least time of a step on a machine, from its memory traffic and arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "core/engine/step_plan.h"
#include "core/model/model_config.h"

namespace metronome {

struct FloorWork {
  double bytes = 0;  // weights once, KV of every context once, KV of new tokens
  double flops = 0;  // linear layers, attention and head; a multiply-add counts as two
};

// Weights and KV in bfloat16. A window layer reads and multiplies only its window. The head counts
// for chunks that sample; its weights count once if there are any.
FloorWork floor_work(const ModelConfig& model, std::span<const ScheduledChunk> chunks);

// Measured rates of a machine.
struct MachineRates {
  double copy_bytes_per_s = 0;    // of a large copy in memory, counting reads and writes
  double matrix_flops_per_s = 0;  // of a large product in bfloat16
};

// Seconds: the longer of both parts, as if they overlapped completely.
double step_floor_s(const FloorWork& work, const MachineRates& rates);

}  // namespace metronome
