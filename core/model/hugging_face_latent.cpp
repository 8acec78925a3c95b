// SPDX-License-Identifier: Apache-2.0
#include "core/model/hugging_face_latent.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "core/base/math.h"

namespace metronome {

namespace {

// YaRN scales the scores by the square of its magnitude (transformers' modeling_deepseek_v3.py).
void read_score_scale(const JsonSection& text, ModelConfig& model) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const std::optional<JsonSection> rope = text.section(key);
    if (!rope) continue;
    const double of_all = rope->number_or("mscale_all_dim", 0);
    const double factor = rope->number_or("factor", 1);
    if (of_all == 0 || factor <= 1) return;
    const double magnitude = 0.1 * of_all * log_of(factor) + 1;
    model.attention_multiplier =
        magnitude * magnitude / std::sqrt(static_cast<double>(model.head_dim));
    return;
  }
}

}  // namespace

// Names and defaults: transformers' configuration_deepseek_v3.py.
void read_latent_attention(const JsonSection& text, ModelConfig& model) {
  LatentAttention& latent = model.latent_attention;
  latent.kv_rank = text.integer_or("kv_lora_rank", 512);
  if (latent.kv_rank == 0) text.fail("kv_lora_rank", "is 0; allowed: at least 1");
  latent.q_rank = text.integer_or("q_lora_rank", text.has("q_lora_rank") ? 0 : 1536);
  latent.nope_dim = text.integer_or("qk_nope_head_dim", 128);
  latent.rope_dim = text.integer_or("qk_rope_head_dim", 64);
  latent.value_dim = text.integer_or("v_head_dim", 128);
  if (latent.value_dim == 0) text.fail("v_head_dim", "is 0; allowed: at least 1");
  model.head_dim = latent.nope_dim + latent.rope_dim;
  model.rotary_dim = latent.rope_dim;
  read_score_scale(text, model);
  if (model.n_kv_heads != model.n_heads) {
    text.fail("num_key_value_heads",
              "is " + std::to_string(model.n_kv_heads) + "; allowed: num_attention_heads, " +
                  std::to_string(model.n_heads) + ", as one latent vector serves all heads");
  }
  if (text.boolean_or("attention_bias", false)) {
    text.fail("attention_bias", "is not supported beside kv_lora_rank; allowed: false");
  }
}

void read_routed_experts(const JsonSection& text, ModelConfig& model) {
  const std::int64_t step = text.integer_or("moe_layer_freq", 1);
  if (step != 1) {
    text.fail("moe_layer_freq", "is " + std::to_string(step) + "; allowed: 1");
  }
  model.n_experts = text.integer_or("n_routed_experts", 256);
  model.n_dense_layers = std::min(text.integer_or("first_k_dense_replace", 3), model.n_layers);
  if (model.n_experts == 0 || model.n_dense_layers == model.n_layers) {
    model.n_experts = model.n_dense_layers = 0;
    return;
  }
  model.n_experts_per_token = text.integer_or("num_experts_per_tok", 8);
  model.expert_ffn_dim = text.integer_or("moe_intermediate_size", 2048);
  const std::int64_t num_shared = text.integer_or("n_shared_experts", 1);
  constexpr std::int64_t kMaxShared = 1 << 10;
  if (num_shared > kMaxShared) {
    text.fail("n_shared_experts",
              "is " + std::to_string(num_shared) + "; allowed: 0 to " + std::to_string(kMaxShared));
  }
  model.shared_expert_ffn_dim = num_shared * std::min<std::int64_t>(model.expert_ffn_dim, 1 << 24);
  model.n_expert_groups = text.integer_or("n_group", 8);
  model.n_groups_per_token = text.integer_or("topk_group", 4);
  model.expert_scale = text.number_or("routed_scaling_factor", 2.5);
}

void read_gpt_oss_experts(const JsonSection& text, ModelConfig& model) {
  model.n_experts = text.integer_or("num_local_experts", 128);
  if (model.n_experts == 0) text.fail("num_local_experts", "is 0; allowed: at least 1");
  model.n_experts_per_token =
      text.integer_or("num_experts_per_tok", text.integer_or("experts_per_token", 4));
  model.expert_ffn_dim = model.ffn_dim;
}

}  // namespace metronome
