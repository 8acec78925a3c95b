// SPDX-License-Identifier: Apache-2.0
#include "sim/drafts/drafter.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/scenario/simulated_model.h"

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

ModelConfig draft_model(const Scenario& scenario, const ModelConfig& target) {
  const std::string key = "speculative.model";
  ModelConfig model = find_served_model(scenario.speculative.model, scenario.location_of(key));
  if (model.vocab_size != target.vocab_size) {
    throw UnplacedConfigError(
        key, model.name + " has a vocabulary of " + std::to_string(model.vocab_size) +
                 " tokens, and " + target.name + " one of " + std::to_string(target.vocab_size) +
                 "; allowed: a model with the same vocabulary");
  }
  if (scenario.kv_dtype != KvDtype::Auto) model.bytes_per_kv_element = target.bytes_per_kv_element;
  return model;
}

}  // namespace

DraftMemory DrafterModel::memory() const {
  const double devices = static_cast<double>(tensor_parallel_size);
  const std::int64_t shared = has_own_tables ? 0 : model.table_bytes();
  const auto split = static_cast<double>(model.weight_bytes() - shared);
  const auto whole = static_cast<double>(input_params * model.bytes_per_weight);
  return {model.name, split / devices + whole,
          static_cast<double>(model.n_attention_layers()) *
              device_kv_bytes(model, tensor_parallel_size)};
}

std::optional<DrafterModel> find_drafter(const Scenario& scenario, const ModelConfig& target) {
  const SpeculativeConfig& config = scenario.speculative;
  if (config.num_speculative_tokens == 0) return std::nullopt;
  DrafterModel drafter;
  drafter.tensor_parallel_size = static_cast<std::int32_t>(
      config.draft_tensor_parallel_size.value_or(scenario.cost_model.tensor_parallel_size));
  switch (config.method) {
    case SpeculativeMethod::None:
    case SpeculativeMethod::Ngram: return std::nullopt;
    case SpeculativeMethod::DraftModel:
      drafter.model = draft_model(scenario, target);
      drafter.has_own_tables = true;
      drafter.num_more_tokens = 1;
      return drafter;
    case SpeculativeMethod::Eagle: drafter.model = eagle_layer(target); break;
    case SpeculativeMethod::Mtp: drafter.model = one_layer(target, "mtp"); break;
  }
  drafter.input_params = 2 * target.hidden_dim * target.hidden_dim;
  return drafter;
}

}  // namespace metronome
