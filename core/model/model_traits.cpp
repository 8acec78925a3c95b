// SPDX-License-Identifier: Apache-2.0
#include "core/model/model_traits.h"

namespace metronome {

std::string first_unlike(const ModelTraits& model, const ModelTraits& other) {
  using Traits = ModelTraits;
  constexpr struct {
    const char* name;
    bool Traits::*trait;
  } kTraits[] = {
      {"has_pre_norms", &Traits::has_pre_norms},
      {"has_post_norms", &Traits::has_post_norms},
      {"has_layer_norms", &Traits::has_layer_norms},
      {"has_norm_weights", &Traits::has_norm_weights},
      {"has_norm_biases", &Traits::has_norm_biases},
      {"has_unit_offset_norms", &Traits::has_unit_offset_norms},
      {"has_parallel_mlp", &Traits::has_parallel_mlp},
      {"shares_layer_norm", &Traits::shares_layer_norm},
      {"has_qk_norm", &Traits::has_qk_norm},
      {"has_whole_qk_norm", &Traits::has_whole_qk_norm},
      {"has_qk_norm_per_head", &Traits::has_qk_norm_per_head},
      {"has_late_qk_norm", &Traits::has_late_qk_norm},
      {"has_qkv_biases", &Traits::has_qkv_biases},
      {"has_attention_output_bias", &Traits::has_attention_output_bias},
      {"has_mlp_biases", &Traits::has_mlp_biases},
      {"has_head_bias", &Traits::has_head_bias},
      {"has_gated_mlp", &Traits::has_gated_mlp},
      {"has_learned_positions", &Traits::has_learned_positions},
      {"has_interleaved_rope", &Traits::has_interleaved_rope},
      {"scales_embeddings", &Traits::scales_embeddings},
      {"has_gated_attention", &Traits::has_gated_attention},
      {"has_attention_sinks", &Traits::has_attention_sinks},
      {"has_shared_expert_gate", &Traits::has_shared_expert_gate},
      {"has_router_biases", &Traits::has_router_biases},
      {"has_expert_biases", &Traits::has_expert_biases},
      {"has_sigmoid_router", &Traits::has_sigmoid_router},
      {"has_choice_bias", &Traits::has_choice_bias},
      {"has_paired_groups", &Traits::has_paired_groups},
      {"has_sparse_mixer", &Traits::has_sparse_mixer},
      {"has_normalised_expert_weights", &Traits::has_normalised_expert_weights},
  };
  for (const auto& [name, trait] : kTraits) {
    if (model.*trait == other.*trait) continue;
    return model.*trait ? std::string(name) : std::string(name) + ": false";
  }
  if (model.activation != other.activation) return "activation";
  return model == other ? "" : "traits";
}

}  // namespace metronome
