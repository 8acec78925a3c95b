// SPDX-License-Identifier: Apache-2.0
#include "sim/drafts/drafter.h"

#include <algorithm>

namespace metronome {
namespace {

// EAGLE's head was trained for a dense model: of experts, as many weights as a token computes.
std::int64_t dense_width(const ModelConfig& target) {
  if (target.n_experts == 0 || target.n_dense_layers > 0) return target.ffn_dim;
  return std::max(target.ffn_dim, target.n_experts_per_token * target.expert_ffn_dim);
}

ModelConfig one_layer(const ModelConfig& target, const char* name) {
  ModelConfig layer = target;
  layer.name = target.name + "'s " + name + " layer";
  layer.n_layers = 1;
  layer.n_dense_layers = 0;
  layer.sliding_window = 0;
  layer.global_layer_interval = 0;
  layer.window_layers.clear();
  layer.dense_layers.clear();
  layer.linear_attention = {};  // it attends, as the module for more tokens of Qwen3-Next
  layer.given_kinds.clear();
  layer.tower_params = layer.extra_params = layer.repeated_params = 0;
  layer.vision = {};
  return layer;
}

ModelConfig eagle_layer(const ModelConfig& target) {
  ModelConfig layer = one_layer(target, "eagle");
  layer.ffn_dim = dense_width(target);
  layer.n_experts = layer.n_experts_per_token = layer.expert_ffn_dim = 0;
  layer.shared_expert_ffn_dim = 0;
  layer.n_expert_groups = layer.n_groups_per_token = 1;
  layer.has_qk_norm = false;
  layer.has_post_norms = false;
  layer.store_as(WeightFormat::Plain);
  return layer;
}

}  // namespace

DraftMemory DrafterModel::memory() const {
  const double devices = static_cast<double>(tensor_parallel_size);
  const std::int64_t shared = has_own_tables ? 0 : model.table_bytes();
  const auto split = static_cast<double>(model.weight_bytes() - shared);
  const auto whole = static_cast<double>(input_params * model.bytes_per_weight);
  return {model.name, split / devices + whole, device_token_bytes(model, tensor_parallel_size)};
}

DrafterModel layer_drafter(SpeculativeMethod method, const ModelConfig& target) {
  DrafterModel drafter;
  drafter.model =
      method == SpeculativeMethod::Eagle ? eagle_layer(target) : one_layer(target, "mtp");
  drafter.input_params = 2 * target.hidden_dim * target.hidden_dim;
  return drafter;
}

}  // namespace metronome
