// SPDX-License-Identifier: Apache-2.0
// Reads latent attention from DeepSeek's config.json.
#pragma once

#include "core/model/json_section.h"
#include "core/model/model_config.h"

namespace metronome {

// Sets latent_attention, head_dim (of a query head, both parts) and rotary_dim from kv_lora_rank,
// q_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim. Requires the rest of the shape.
// Throws ConfigError.
void read_latent_attention(const JsonSection& text, ModelConfig& model);

}  // namespace metronome
