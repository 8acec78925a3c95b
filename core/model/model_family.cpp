// SPDX-License-Identifier: Apache-2.0
#include "core/model/model_family.h"

#include <iterator>
#include <vector>

#include "core/model/dense_families.h"
#include "core/model/expert_families.h"

namespace metronome {
namespace {

constexpr ModelTraits kGemma2Traits = {.has_post_norms = true,
                                       .has_unit_offset_norms = true,
                                       .scales_embeddings = true,
                                       .activation = Activation::GeluTanh};
constexpr ModelTraits kGemma3Traits = {.has_post_norms = true,
                                       .has_unit_offset_norms = true,
                                       .has_qk_norm = true,
                                       .scales_embeddings = true,
                                       .activation = Activation::GeluTanh};
constexpr ConfigDefaults kGemma3Defaults = {.has_tied_embeddings = true,
                                            .eos_token_id = 1,
                                            .n_heads = 8,
                                            .n_kv_heads = 4,
                                            .head_dim = 256,
                                            .vocab_size = 262208,
                                            .max_position_embeddings = 131072,
                                            .rope_theta = 1e6,
                                            .query_pre_attn_scalar = 256};
constexpr ModelTraits kQwen35Traits = {
    .has_unit_offset_norms = true, .has_qk_norm = true, .has_gated_attention = true};
constexpr ModelTraits kQwen35MoeTraits = {.has_unit_offset_norms = true,
                                          .has_qk_norm = true,
                                          .has_gated_attention = true,
                                          .has_shared_expert_gate = true};
constexpr ConfigDefaults kQwen35Defaults = {.n_heads = 16,
                                            .n_kv_heads = 4,
                                            .head_dim = 256,
                                            .vocab_size = 248320,
                                            .max_position_embeddings = 32768,
                                            .partial_rotary_factor = 0.25};
constexpr ConfigDefaults kQwen35MoeDefaults = {.n_heads = 16,
                                               .n_kv_heads = 2,
                                               .head_dim = 256,
                                               .vocab_size = 248320,
                                               .max_position_embeddings = 32768,
                                               .partial_rotary_factor = 0.25,
                                               .n_experts = 256,
                                               .n_experts_per_token = 8,
                                               .expert_ffn_dim = 512,
                                               .shared_expert_ffn_dim = 512,
                                               .has_normalised_expert_weights = true};

constexpr ExpertKeys kQwen35Experts = {.shared_width = "shared_expert_intermediate_size"};

// Source of traits and defaults: transformers 5's modeling and configuration of each family.
constexpr ModelFamily kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .traits = {},
     .defaults = {.eos_token_id = 2}},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .traits = {},
     .defaults = {.eos_token_id = 2, .n_kv_heads = 8},
     .windows = WindowRule::Always,
     .window_default = 4096},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .traits = {},
     .defaults = {.eos_token_id = 2,
                  .n_kv_heads = 8,
                  .norm_eps = 1e-5,
                  .rope_theta = 1e6,
                  .n_experts = 8,
                  .n_experts_per_token = 2},
     .tensors = TensorNames::Mixtral,
     .expert_keys = {.count = "num_local_experts", .width = nullptr},
     .windows = WindowRule::Always,
     .has_experts = true},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .traits = {.has_qkv_biases = true},
     .defaults = {.n_kv_heads = 32},
     .biases = {.qkv = nullptr},
     .windows = WindowRule::OnRequest,
     .window_default = 4096},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .traits = {.has_qk_norm = true},
     .defaults = {.n_kv_heads = 32, .head_dim = 128},
     .windows = WindowRule::OnRequest,
     .window_default = 4096},
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .traits = {.has_qk_norm = true},
     .defaults = {.n_kv_heads = 4},
     .expert_keys = {.normalises = "norm_topk_prob", .dense = DenseLayers::Qwen},
     .windows = WindowRule::OnRequest,
     .window_default = 4096,
     .has_experts = true},
    {.architecture = "Qwen3VLForConditionalGeneration",
     .model_type = "qwen3_vl",
     .traits = {.has_qk_norm = true},
     .defaults = {.n_heads = 32,
                  .n_kv_heads = 32,
                  .head_dim = 128,
                  .vocab_size = 151936,
                  .max_position_embeddings = 128000,
                  .rope_theta = 5e5},
     .tensors = TensorNames::QwenVl,
     .is_nested = true,
     .has_vision = true},
    {.architecture = "Qwen3VLMoeForConditionalGeneration",
     .model_type = "qwen3_vl_moe",
     .traits = {.has_qk_norm = true},
     .defaults = {.n_heads = 16,
                  .n_kv_heads = 16,
                  .vocab_size = 151936,
                  .max_position_embeddings = 128000,
                  .rope_theta = 5e5},
     .tensors = TensorNames::QwenVl,
     .expert_keys = {.dense = DenseLayers::Qwen},
     .is_nested = true,
     .has_experts = true,
     .has_vision = true},
    {.architecture = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .traits = kGemma2Traits,
     .defaults = {.has_tied_embeddings = true,
                  .eos_token_id = 1,
                  .n_heads = 8,
                  .n_kv_heads = 4,
                  .head_dim = 256,
                  .vocab_size = 256000,
                  .max_position_embeddings = 8192,
                  .query_pre_attn_scalar = 256,
                  .attention_softcap = 50,
                  .logit_softcap = 30},
     .tensors = TensorNames::Gemma,
     .activation_key = "hidden_activation",
     .windows = WindowRule::Alternate,
     .window_default = 4096,
     .window_interval = 2},
    {.architecture = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .traits = kGemma3Traits,
     .defaults = kGemma3Defaults,
     .tensors = TensorNames::Gemma,
     .activation_key = "hidden_activation",
     .windows = WindowRule::Alternate,
     .window_default = 4096,
     .window_interval = 6,
     .local_rope_theta = 1e4},
    {.architecture = "Gemma3ForConditionalGeneration",
     .model_type = "gemma3",
     .traits = kGemma3Traits,
     .defaults = kGemma3Defaults,
     .tensors = TensorNames::Gemma,
     .activation_key = "hidden_activation",
     .windows = WindowRule::Alternate,
     .window_default = 4096,
     .window_interval = 6,
     .local_rope_theta = 1e4,
     .is_nested = true},
    {.architecture = "Phi3ForCausalLM",
     .model_type = "phi3",
     .traits = {},
     .defaults = {.eos_token_id = 32000, .norm_eps = 1e-5},
     .tensors = TensorNames::Phi3,
     .windows = WindowRule::Always,
     .has_partial_rotation = true},
    {.architecture = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .traits = {},
     .defaults =
         {.has_tied_embeddings = true, .eos_token_id = 128001, .n_kv_heads = 4, .rope_theta = 2e6},
     .windows = WindowRule::OnRequest,
     .unrotated_interval = 4},
    {.architecture = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .traits = {.has_pre_norms = false,
                .has_post_norms = true,
                .has_qk_norm = true,
                .has_whole_qk_norm = true},
     .defaults = {.eos_token_id = 50279, .norm_eps = 1e-5}},
    {.architecture = "GraniteForCausalLM",
     .model_type = "granite",
     .traits = {},
     .defaults = {.eos_token_id = 2},
     .has_multipliers = true},
    {.architecture = "Qwen3NextForCausalLM",
     .model_type = "qwen3_next",
     .traits = kQwen35MoeTraits,
     .defaults = {.n_heads = 16,
                  .n_kv_heads = 2,
                  .head_dim = 256,
                  .vocab_size = 151936,
                  .max_position_embeddings = 32768,
                  .partial_rotary_factor = 0.25,
                  .n_experts = 512,
                  .n_experts_per_token = 10,
                  .expert_ffn_dim = 512,
                  .shared_expert_ffn_dim = 512,
                  .has_normalised_expert_weights = true},
     .tensors = TensorNames::Qwen3Next,
     .expert_keys = {.shared_width = "shared_expert_intermediate_size",
                     .normalises = "norm_topk_prob",
                     .dense = DenseLayers::Qwen},
     .has_partial_rotation = true,
     .has_experts = true,
     .has_linear_attention = true},
    {.architecture = "Qwen3_5ForCausalLM",
     .model_type = "qwen3_5_text",
     .traits = kQwen35Traits,
     .defaults = kQwen35Defaults,
     .tensors = TensorNames::Qwen35,
     .has_partial_rotation = true,
     .has_linear_attention = true},
    {.architecture = "Qwen3_5ForConditionalGeneration",
     .model_type = "qwen3_5",
     .traits = kQwen35Traits,
     .defaults = kQwen35Defaults,
     .tensors = TensorNames::Qwen35,
     .has_partial_rotation = true,
     .is_nested = true,
     .has_linear_attention = true},
    {.architecture = "Qwen3_5MoeForCausalLM",
     .model_type = "qwen3_5_moe_text",
     .traits = kQwen35MoeTraits,
     .defaults = kQwen35MoeDefaults,
     .tensors = TensorNames::Qwen35,
     .expert_keys = kQwen35Experts,
     .has_partial_rotation = true,
     .has_experts = true,
     .has_linear_attention = true},
    {.architecture = "Qwen3_5MoeForConditionalGeneration",
     .model_type = "qwen3_5_moe",
     .traits = kQwen35MoeTraits,
     .defaults = kQwen35MoeDefaults,
     .tensors = TensorNames::Qwen35,
     .expert_keys = kQwen35Experts,
     .has_partial_rotation = true,
     .is_nested = true,
     .has_experts = true,
     .has_linear_attention = true},
    {.architecture = "GPT2LMHeadModel",
     .model_type = "gpt2",
     .traits = {.has_layer_norms = true,
                .has_norm_biases = true,
                .has_qkv_biases = true,
                .has_attention_output_bias = true,
                .has_mlp_biases = true,
                .has_gated_mlp = false,
                .has_learned_positions = true,
                .activation = Activation::GeluTanh},
     .defaults = {.has_tied_embeddings = true,
                  .eos_token_id = 50256,
                  .n_heads = 12,
                  .vocab_size = 50257,
                  .max_position_embeddings = 1024,
                  .norm_eps = 1e-5},
     .tensors = TensorNames::Gpt2,
     .keys = ConfigKeys::Gpt2,
     .norm_eps_key = "layer_norm_epsilon",
     .activation_key = "activation_function",
     .biases = {.qkv = nullptr, .attention_output = nullptr, .mlp = nullptr}},
};

std::string names_of(bool includes_simulated) {
  std::string list;
  for (const ModelFamily& family : model_families()) {
    if (family.is_simulated_only && !includes_simulated) continue;
    if (!list.empty()) list += ", ";
    list += family.architecture;
  }
  return list;
}

}  // namespace

std::span<const ModelFamily> model_families() {
  static const std::vector<ModelFamily> all = [] {
    std::vector<ModelFamily> families(std::begin(kFamilies), std::end(kFamilies));
    families.insert(families.end(), expert_families().begin(), expert_families().end());
    families.insert(families.end(), dense_families().begin(), dense_families().end());
    return families;
  }();
  return all;
}

const ModelFamily* find_family(std::string_view architecture) {
  for (const ModelFamily& family : model_families()) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

std::string computed_architectures() { return names_of(false); }

std::string known_architectures() { return names_of(true); }

}  // namespace metronome
