#include "core/model/model_family.h"

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
     .defaults = {.eos_token_id = 2, .n_kv_heads = 8, .norm_eps = 1e-5, .rope_theta = 1e6},
     .tensors = TensorNames::Mixtral,
     .windows = WindowRule::Always,
     .has_experts = true},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .traits = {.has_qkv_biases = true},
     .defaults = {.n_kv_heads = 32},
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
     .windows = WindowRule::Alternate,
     .window_default = 4096,
     .window_interval = 2},
    {.architecture = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .traits = kGemma3Traits,
     .defaults = kGemma3Defaults,
     .tensors = TensorNames::Gemma,
     .windows = WindowRule::Alternate,
     .window_default = 4096,
     .window_interval = 6,
     .local_rope_theta = 1e4},
    {.architecture = "Gemma3ForConditionalGeneration",
     .model_type = "gemma3",
     .traits = kGemma3Traits,
     .defaults = kGemma3Defaults,
     .tensors = TensorNames::Gemma,
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
     .keys = ConfigKeys::Gpt2},
};

}  // namespace

std::span<const ModelFamily> model_families() { return kFamilies; }

const ModelFamily* find_family(std::string_view architecture) {
  for (const ModelFamily& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

std::string computed_architectures() {
  std::string list;
  for (const ModelFamily& family : kFamilies) {
    if (!list.empty()) list += ", ";
    list += family.architecture;
  }
  return list;
}

}  // namespace metronome
