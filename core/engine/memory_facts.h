// SPDX-License-Identifier: Apache-2.0
// A serving engine keeps a part of its share of a device's memory from weights and KV blocks, for
// activations, CUDA graphs and its runtime. docs/internals/cost_models.md has the logs it was set
// by.
#pragma once

#include <cstdint>

#include "core/engine/scheduler_config.h"
#include "core/model/model_config.h"

namespace metronome {

struct MemoryFacts {
  SchedulerConfig scheduler = {};
  bool looks_up_drafts = false;  // drafts of n-grams, or of a draft model
  std::int64_t tensor_parallel_size = 1;
  std::int64_t num_tokens = 0;        // of the largest step
  std::int64_t num_seqs = 0;          // of the largest step
  std::int64_t max_graph_tokens = 0;  // 0: no CUDA graphs
  std::int64_t image_tokens = 0;      // of the largest image, where the model takes some
  double gpu_memory_utilization = 0.9;
  double weight_bytes = 0;  // of one device
};

// The parts that products have in common; see PolicyInfo::reserved_gib.

// The runtime: the context, libraries, and buffers of collectives.
double runtime_gib(const MemoryFacts& facts);
// Peak of the largest step's pass without routed experts.
double forward_bytes(const MemoryFacts& facts, const ModelConfig& model);
// Peak of a vision tower's pass over images of so many tokens: pixels, embeddings of positions, and
// of a block the residual stream, its norm, and the MLP before and after its activation.
double vision_bytes(const MemoryFacts& facts, const ModelConfig& model, std::int64_t num_tokens);
// Buffers of the kernels of routed experts, which stay.
double expert_bytes(const MemoryFacts& facts, const ModelConfig& model);

}  // namespace metronome
