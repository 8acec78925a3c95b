// SPDX-License-Identifier: Apache-2.0
#include "core/model/unknown_architecture.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace metronome {
namespace {

constexpr const char* kNumExperts[] = {"num_experts", "n_routed_experts", "num_local_experts"};
constexpr const char* kNumExpertsPerToken[] = {"num_experts_per_tok", "num_experts_per_token",
                                               "top_k_experts", "experts_per_token", "moe_topk"};
constexpr const char* kSharedWidth[] = {"shared_expert_intermediate_size",
                                        "moe_shared_expert_intermediate_size",
                                        "shared_intermediate_size"};
constexpr const char* kNumShared[] = {"n_shared_experts", "num_shared_experts"};
constexpr const char* kStates = "linear_num_value_heads";

// The value of the first key that has one.
std::int64_t first_of(const JsonSection& text, std::span<const char* const> keys,
                      std::int64_t otherwise) {
  for (const char* key : keys) {
    if (text.find(key) != nullptr) return text.integer_or(key, otherwise);
  }
  return otherwise;
}

// Whether every layer has a window or none, as a list says.
bool lists_windows(const JsonSection& text) {
  const Json* const types = text.find("layer_types");
  if (types == nullptr || !types->is_array() || text.integer_or("sliding_window", 0) == 0) {
    return false;
  }
  return std::all_of(types->begin(), types->end(), [](const Json& type) {
    return type == "sliding_attention" || type == "full_attention";
  });
}

bool is_nested_in(const JsonSection& root) {
  return root.find("hidden_size") == nullptr && root.section("text_config");
}

JsonSection text_of(const JsonSection& root) {
  return is_nested_in(root) ? root.required_section("text_config") : root;
}

}  // namespace

std::string key_without_reading(const JsonSection& root) {
  constexpr const char* kUnread[] = {
      "hybrid_override_pattern", "layers_block_type", "block_configs",  "mamba_num_heads",
      "mamba_d_state",           "ssm_cfg",           "ssm_state_size", "conv_L_cache",
      "attn_layer_indices",      "attn_layer_period"};
  const JsonSection text = text_of(root);
  if (root.boolean_or("is_encoder_decoder", false)) return "is_encoder_decoder";
  for (const char* key : kUnread) {
    if (text.find(key) != nullptr) return text.dotted(key);
  }
  return {};
}

ModelFamily nearest_family(const JsonSection& root) {
  const JsonSection text = text_of(root);
  const bool has_experts = first_of(text, kNumExperts, 0) > 0;
  ModelFamily family = *find_family(text.find(kStates) == nullptr ? "LlamaForCausalLM"
                                    : has_experts                 ? "Qwen3_5MoeForCausalLM"
                                                                  : "Qwen3_5ForCausalLM");
  family.is_nested = is_nested_in(root);
  family.has_experts = has_experts;
  family.keys = ConfigKeys::Any;
  family.defaults = {};
  if (lists_windows(text)) family.windows = WindowRule::Alternate;
  // Where no layer has another MLP, a file need not say its width.
  if (has_experts && text.find("intermediate_size") == nullptr)
    family.tensors = TensorNames::Qwen35;
  return family;
}

void read_any_experts(const JsonSection& text, ModelConfig& model) {
  model.n_experts = first_of(text, kNumExperts, 0);
  model.n_dense_layers = std::min(text.integer_or("first_k_dense_replace", 0), model.n_layers);
  if (model.n_experts == 0 || model.n_dense_layers == model.n_layers) {
    model.n_experts = model.n_dense_layers = 0;
    return;
  }
  model.n_experts_per_token = first_of(text, kNumExpertsPerToken, 1);
  model.expert_ffn_dim = text.integer_or("moe_intermediate_size", model.ffn_dim);
  const std::int64_t num_shared =
      std::min<std::int64_t>(first_of(text, kNumShared, 0), model.n_experts);
  model.shared_expert_ffn_dim = first_of(
      text, kSharedWidth, num_shared * std::min<std::int64_t>(model.expert_ffn_dim, 1 << 24));
}

std::string approximation_of(const std::string& architecture, const JsonSection& text,
                             const ModelConfig& model) {
  constexpr const char* kShape[] = {"num_hidden_layers",   "hidden_size",  "num_attention_heads",
                                    "num_key_value_heads", "head_dim",     "intermediate_size",
                                    "vocab_size",          "kv_lora_rank", kStates};
  std::string keys;
  const auto add_keys = [&](std::span<const char* const> names) {
    for (const char* name : names) {
      if (text.find(name) == nullptr) continue;
      keys += (keys.empty() ? "" : ", ") + text.dotted(name);
    }
  };
  add_keys(kShape);
  if (model.n_experts > 0) {
    constexpr const char* kWidth[] = {"moe_intermediate_size", "first_k_dense_replace"};
    add_keys(kNumExperts);
    add_keys(kNumExpertsPerToken);
    add_keys(kWidth);
    add_keys(kSharedWidth);
    add_keys(kNumShared);
  }
  const bool has_windows = model.n_window_layers() > 0;
  return architecture + " is an unknown architecture: it is simulated as " +
         (model.n_experts > 0 ? "a mixture of experts" : "a dense model") + " with " +
         (model.latent_attention.is_empty() ? "attention of grouped queries" : "latent attention") +
         (model.linear_attention.is_empty() ? "" : " and layers with a state") +
         (has_windows ? " and windows" : "") + ", by the keys " + keys +
         "; its other parts cost nothing";
}

}  // namespace metronome
