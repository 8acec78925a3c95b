// SPDX-License-Identifier: Apache-2.0
#include "core/model/hugging_face_latent.h"

#include <cmath>
#include <fmt/core.h>
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
              fmt::format(
                  "is {}; allowed: num_attention_heads, {}, as one latent vector serves all heads",
                  model.n_kv_heads, model.n_heads));
  }
  if (text.boolean_or("attention_bias", false)) {
    text.fail("attention_bias", "is not supported beside kv_lora_rank; allowed: false");
  }
}

}  // namespace metronome
