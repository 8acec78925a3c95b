// SPDX-License-Identifier: Apache-2.0
// Reads latent attention and routed experts of DeepSeek-V3's config.json, and gpt-oss's experts.
#pragma once

#include "core/model/json_section.h"
#include "core/model/model_config.h"

namespace metronome {

// Sets latent_attention, head_dim (of a query head, both parts) and rotary_dim from kv_lora_rank,
// q_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim. Requires the rest of the shape.
// Throws ConfigError.
void read_latent_attention(const JsonSection& text, ModelConfig& model);

// Sets the experts, those shared by all tokens and the groups of the router from n_routed_experts,
// n_shared_experts, n_group, topk_group and others. The first first_k_dense_replace layers have
// none. Throws ConfigError.
void read_routed_experts(const JsonSection& text, ModelConfig& model);

// Sets the experts, one of width intermediate_size in every layer.
void read_gpt_oss_experts(const JsonSection& text, ModelConfig& model);

}  // namespace metronome
