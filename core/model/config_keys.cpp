// SPDX-License-Identifier: Apache-2.0
#include "core/model/config_keys.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace metronome {
namespace {

// A number of ModelConfig, and the keys of files for it, dotted.
struct FileKeys {
  std::string_view name;
  std::vector<std::string_view> keys;
};

const FileKeys kKeys[] = {
    {"n_layers", {"num_hidden_layers", "n_layer"}},
    {"hidden_dim", {"hidden_size", "n_embd"}},
    {"n_heads", {"num_attention_heads", "n_head"}},
    {"n_kv_heads", {"num_key_value_heads", "num_attention_heads", "n_head"}},
    {"head_dim", {"head_dim", "qk_nope_head_dim", "num_attention_heads", "n_head"}},
    {"ffn_dim", {"intermediate_size", "n_inner", "moe_intermediate_size"}},
    {"n_experts", {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}},
    {"n_experts_per_token", {"num_experts_per_tok", "experts_per_token", "moe_k", "moe_topk"}},
    {"expert_ffn_dim", {"moe_intermediate_size", "intermediate_size"}},
    {"n_dense_layers", {"first_k_dense_replace", "mlp_only_layers", "decoder_sparse_step"}},
    {"dense_layers", {"mlp_only_layers", "decoder_sparse_step"}},
    {"shared_expert_ffn_dim", {"shared_expert_intermediate_size", "n_shared_experts"}},
    {"n_expert_groups", {"n_group"}},
    {"n_groups_per_token", {"topk_group"}},
    {"expert_scale", {"routed_scaling_factor"}},
    {"vocab_size", {"vocab_size"}},
    {"max_position_embeddings", {"max_position_embeddings", "n_positions"}},
    {"sliding_window", {"sliding_window"}},
    {"global_layer_interval", {"sliding_window_pattern", "_sliding_window_pattern", "layer_types"}},
    {"window_layers", {"layer_types", "max_window_layers"}},
    {"unrotated_layers", {"no_rope_layers", "no_rope_layer_interval"}},
    {"rotary_dim",
     {"partial_rotary_factor", "rope_parameters.partial_rotary_factor", "qk_rope_head_dim",
      "rotary_pct", "rotary_dim"}},
    {"norm_eps",
     {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps", "norm_epsilon"}},
    {"rope_theta",
     {"rope_theta", "rope_parameters.rope_theta", "rope_scaling.rope_theta",
      "rope_parameters.full_attention.rope_theta", "rotary_emb_base"}},
    {"rope_local_theta", {"rope_local_base_freq", "rope_parameters.sliding_attention.rope_theta"}},
    {"attention_softcap", {"attn_logit_softcapping"}},
    {"logit_softcap", {"final_logit_softcapping"}},
    {"logit_divisor", {"logits_scaling", "logit_scale"}},
    {"qkv_clip", {"clip_qkv"}},
    {"query_scale_beta",
     {"rope_parameters.llama_4_scaling_beta", "rope_scaling.llama_4_scaling_beta"}},
    {"query_scale_positions",
     {"rope_parameters.original_max_position_embeddings",
      "rope_scaling.original_max_position_embeddings"}},
    {"eos_token_ids", {"eos_token_id"}},
    {"int4_group_size",
     {"quantization_config.group_size", "quantization_config.q_group_size", "quantization_config"}},
    {"rope_scaling.original_max_positions",
     {"rope_scaling.original_max_position_embeddings",
      "rope_parameters.original_max_position_embeddings", "original_max_position_embeddings"}},
    {"rope_scaling.short_factors", {"rope_scaling.short_factor", "rope_parameters.short_factor"}},
    {"rope_scaling.long_factors", {"rope_scaling.long_factor", "rope_parameters.long_factor"}},
    {"rope_scaling.factor", {"rope_scaling.factor", "rope_parameters.factor"}},
    {"rope_scaling.low_freq_factor",
     {"rope_scaling.low_freq_factor", "rope_parameters.low_freq_factor"}},
    {"rope_scaling.high_freq_factor",
     {"rope_scaling.high_freq_factor", "rope_parameters.high_freq_factor"}},
    {"rope_scaling.beta_fast", {"rope_scaling.beta_fast", "rope_parameters.beta_fast"}},
    {"rope_scaling.beta_slow", {"rope_scaling.beta_slow", "rope_parameters.beta_slow"}},
    {"rope_scaling.attention_factor",
     {"rope_scaling.attention_factor", "rope_parameters.attention_factor"}},
    {"mrope_sections", {"rope_scaling.mrope_section", "rope_parameters.mrope_section"}},
    {"linear_attention.layers", {"layer_types", "full_attention_interval"}},
    {"linear_attention.n_key_heads", {"linear_num_key_heads"}},
    {"linear_attention.n_value_heads", {"linear_num_value_heads"}},
    {"linear_attention.key_head_dim", {"linear_key_head_dim"}},
    {"linear_attention.value_head_dim", {"linear_value_head_dim"}},
    {"linear_attention.conv_width", {"linear_conv_kernel_dim"}},
    {"latent_attention.kv_rank", {"kv_lora_rank"}},
    {"latent_attention.q_rank", {"q_lora_rank"}},
    {"latent_attention.nope_dim", {"qk_nope_head_dim"}},
    {"latent_attention.rope_dim", {"qk_rope_head_dim"}},
    {"latent_attention.value_dim", {"v_head_dim"}},
    {"vision.depth", {"vision_config.depth"}},
    {"vision.hidden_dim", {"vision_config.hidden_size"}},
    {"vision.n_heads", {"vision_config.num_heads"}},
    {"vision.ffn_dim", {"vision_config.intermediate_size"}},
    {"vision.in_channels", {"vision_config.in_channels"}},
    {"vision.patch_size", {"vision_config.patch_size"}},
    {"vision.temporal_patch_size", {"vision_config.temporal_patch_size"}},
    {"vision.merge_size", {"vision_config.spatial_merge_size"}},
    {"vision.out_dim", {"vision_config.out_hidden_size"}},
    {"vision.num_positions", {"vision_config.num_position_embeddings"}},
    {"vision.image_token", {"image_token_id"}},
    {"vision.deepstack_layers", {"vision_config.deepstack_visual_indexes"}},
};

constexpr std::string_view kText = "text_config.";

bool has_key(const Json& file, std::string_view dotted) {
  const Json* at = &file;
  while (!dotted.empty()) {
    const std::size_t dot = std::min(dotted.find('.'), dotted.size());
    at = at->is_object() ? at->find(std::string(dotted.substr(0, dot))) : nullptr;
    if (at == nullptr) return false;
    dotted.remove_prefix(std::min(dot + 1, dotted.size()));
  }
  return true;
}

// The first of the keys that the file has, in its language model or beside it.
std::string key_in(const Json& file, const FileKeys& names) {
  const bool is_nested = has_key(file, "text_config");
  for (const std::string_view key : names.keys) {
    const std::string nested = std::string(kText) + std::string(key);
    if (is_nested && has_key(file, nested)) return nested;
    if (has_key(file, key)) return std::string(key);
  }
  return std::string(names.keys.front());
}

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

const FileKeys* find_name(std::string_view name) {
  const auto found = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [name](const FileKeys& keys) { return keys.name == name; });
  return found == std::end(kKeys) ? nullptr : &*found;
}

}  // namespace

std::string in_keys_of(const Json& file, std::string_view sentence) {
  std::string result;
  // "vision.hidden_dim: ... a multiple of n_heads" means vision.n_heads.
  const std::size_t part_end = sentence.substr(0, sentence.find_first_of(": ")).find('.');
  const std::string part(sentence.substr(0, part_end == std::string_view::npos ? 0 : part_end + 1));
  while (!sentence.empty()) {
    std::size_t end = 0;
    while (end < sentence.size() &&
           (is_of_name(sentence[end]) ||
            (sentence[end] == '.' && end + 1 < sentence.size() && is_of_name(sentence[end + 1])))) {
      ++end;
    }
    const std::string_view word = sentence.substr(0, end);
    const FileKeys* names = find_name(part + std::string(word));
    if (names == nullptr) names = find_name(word);
    result += names == nullptr ? std::string(word) : key_in(file, *names);
    sentence.remove_prefix(end);
    if (sentence.empty()) break;
    result += sentence.front();
    sentence.remove_prefix(1);
  }
  return result;
}

std::optional<IntegerRange> config_key_range(std::string_view dotted_key) {
  if (dotted_key.starts_with(kText)) dotted_key.remove_prefix(kText.size());
  for (const FileKeys& names : kKeys) {
    const bool has =
        std::find(names.keys.begin(), names.keys.end(), dotted_key) != names.keys.end();
    if (!has) continue;
    if (const std::optional<IntegerRange> range = shape_range(names.name)) return range;
  }
  return std::nullopt;
}

}  // namespace metronome
