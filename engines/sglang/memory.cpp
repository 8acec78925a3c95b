// SPDX-License-Identifier: Apache-2.0
#include "core/engine/memory_facts.h"
#include "engines/sglang/product.h"

namespace metronome {

// SGLang takes its share of the memory that is free before it loads weights. Logs miss 0.4 to 0.8
// GiB on one device, and 1.8 on one of eight.
double sglang_reserved_gib(const MemoryFacts& facts, const ModelConfig& /*model*/) {
  constexpr double kRuntimeGib = 0.6;
  constexpr double kParallelRuntimeGib = 1.5;
  return facts.gpu_memory_utilization *
         (facts.tensor_parallel_size > 1 ? kParallelRuntimeGib : kRuntimeGib);
}

}  // namespace metronome
