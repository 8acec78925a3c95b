// SPDX-License-Identifier: Apache-2.0
#include "core/engine/memory_facts.h"

#include <algorithm>

#include "core/base/real.h"

namespace metronome {

double runtime_gib(const MemoryFacts& facts) {
  // Logs of vLLM have 0.13 to 0.46 GiB on one device, 0.95 to 2.2 on one of several.
  return facts.tensor_parallel_size > 1 ? 1.5 : 0.25;
}

// Gate, up and their product, and four vectors of the hidden dimension, in 16 bits.
double forward_bytes(const MemoryFacts& facts, const ModelConfig& model) {
  const bool has_dense_mlp = model.n_moe_layers() < model.n_layers;
  const std::int64_t width =
      std::max(model.shared_expert_ffn_dim, has_dense_mlp ? model.ffn_dim : 0);
  const double mlp = 6 * real(width) / real(facts.tensor_parallel_size);
  return real(facts.num_tokens) * (mlp + 8 * real(model.hidden_dim));
}

double vision_bytes(const MemoryFacts& facts, const ModelConfig& model, std::int64_t num_tokens) {
  const VisionTower& tower = model.vision;
  const std::int64_t num_patches = num_tokens * tower.merge_size * tower.merge_size;
  const double mlp = 2 * real(tower.ffn_dim) / real(facts.tensor_parallel_size);
  return 2 * real(num_patches) * (real(tower.patch_inputs() + 3 * tower.hidden_dim) + mlp);
}

// The larger of gate and up and of the result, and the product of the former, for each expert of
// each token.
double expert_bytes(const MemoryFacts& facts, const ModelConfig& model) {
  const double width = real(model.expert_ffn_dim) / real(facts.tensor_parallel_size);
  const double rows = real(facts.num_tokens * model.n_experts_per_token);
  return 2 * rows * (std::max(2 * width, real(model.hidden_dim)) + width);
}

}  // namespace metronome
