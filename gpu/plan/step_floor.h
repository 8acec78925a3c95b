// The least time a step can take on a machine: what it must move through memory, and compute.
#pragma once

#include <cstdint>
#include <span>

#include "core/engine/step_plan.h"
#include "core/model/model_config.h"

namespace metronome {

struct FloorWork {
  double bytes = 0;  // weights once, keys and values of every context once, those of new tokens
  double flops = 0;  // of linear layers, attention and the head; a multiply-add counts as two
};

// Weights and KV in bfloat16; a window layer reads and multiplies what its window shows. The head
// is counted for chunks that sample, its weights if there are any.
FloorWork floor_work(const ModelConfig& model, std::span<const ScheduledChunk> chunks);

// What a machine was measured to do.
struct MachineRates {
  double copy_bytes_per_s = 0;    // of a large copy in memory, bytes read and bytes written
  double matrix_flops_per_s = 0;  // of a large product in bfloat16
};

// Seconds: the longer of both parts, as if the shorter were hidden behind it.
double step_floor_s(const FloorWork& work, const MachineRates& rates);

}  // namespace metronome
