// SPDX-License-Identifier: Apache-2.0
// The families of models that executors compute. One row says what a family is made of, what its
// config.json leaves out, and how its files name weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/model/model_traits.h"

namespace metronome {

// How the files of a family name their tensors (stored_tensor.h).
enum class TensorNames : std::uint8_t {
  Llama,       // the names of WeightSpec
  Gemma,       // the same, perhaps with the prefix of a multimodal file
  Phi3,        // qkv_proj and gate_up_proj hold several matrices
  Glm,         // gate_up_proj holds two matrices
  Glm4,        // the same, and norms have names of their own
  HunYuan,     // norms of queries and keys have names of their own
  Apertus,     // norms of attention and MLP have names of their own
  Starcoder2,  // matrices of an MLP have names of their own
  Phi,         // and so have attention's output and the last norm
  GptNeox,     // GPT-NeoX's own names; queries, keys and values of a head follow each other
  Gpt2,        // GPT-2's own names; matrices are stored transposed
  Mixtral,     // block_sparse_moe, experts w1, w3 and w2
  Qwen3Next,   // projections of linear attention are fused by key head; gates are beside queries
  QwenVl,      // the same names, with the prefix; experts may be in one tensor
  Qwen35,      // the same gates; queries, keys and values of linear attention are fused
  DeepSeek,    // shared_experts; the language model may have a prefix
  Ernie,       // the same, and a bias of the choice in moe_statics
  HunYuanMoe,  // as HunYuan, and a shared_mlp and a router wg
  Granite,     // each matrix of all experts in one tensor, a shared_mlp beside them
  GptOss,      // the same, transposed, gates and ups alternating; biases beside them
};

// Keys of config.json, where families have different ones.
enum class ConfigKeys : std::uint8_t {
  Llama,     // hidden_size, num_hidden_layers, ...
  Gpt2,      // n_embd, n_layer, ...
  DeepSeek,  // those of Llama, kv_lora_rank, ...
};

// The layers of a mixture that have no experts.
enum class DenseLayers : std::uint8_t {
  None,
  Qwen,   // mlp_only_layers, and all but every decoder_sparse_step-th
  First,  // the first first_k_dense_replace, or mlp_layer_types
  Ernie,  // all outside of moe_layer_start_index to moe_layer_end_index, every n-th
};

// Keys of config.json for experts, and what transformers' classes supply; null: there is no such
// key.
struct ExpertKeys {
  const char* count = "num_experts";
  const char* per_token = "num_experts_per_tok";
  const char* width = "moe_intermediate_size";  // of an expert; null: it is as wide as an MLP
  const char* num_shared = nullptr;             // experts for all tokens, each as wide as any other
  const char* shared_width = nullptr;           // of the one expert for all tokens
  const char* normalises = nullptr;     // a switch: the weights of a token's experts add up to one
  bool has_wide_shared_expert = false;  // one more expert, for all tokens, as wide as an MLP
  bool has_groups = false;              // n_group, topk_group and routed_scaling_factor
  DenseLayers dense = DenseLayers::None;
};

// Values that transformers' configuration classes supply where a file is silent. -1 = the file must
// have the value.
struct ConfigDefaults {
  bool has_tied_embeddings = false;
  std::int32_t eos_token_id = -1;  // -1 = none
  std::int64_t n_heads = -1;
  std::int64_t n_kv_heads = 0;  // 0 = as many as query heads
  std::int64_t head_dim = 0;    // 0 = hidden_size / num_attention_heads
  std::int64_t vocab_size = -1;
  std::int64_t max_position_embeddings = -1;
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  double partial_rotary_factor = 1;
  std::int64_t n_experts = 128;
  std::int64_t n_experts_per_token = 8;
  std::int64_t expert_ffn_dim = 768;
  std::int64_t shared_expert_ffn_dim = 0;
  std::int64_t n_shared_experts = 0;
  std::int64_t n_dense_layers = 0;
  std::int64_t n_expert_groups = 1;
  std::int64_t n_groups_per_token = 1;
  double expert_scale = 1;
  bool has_normalised_expert_weights = false;
  double query_pre_attn_scalar = 0;
  double attention_softcap = 0;
  double logit_softcap = 0;
  double logit_scale = 0;  // multiplies logits; 0 = there is no key for it
};

// The keys that say whether projections have biases; null = there is none. Where a file is silent,
// the family's traits say it.
struct BiasKeys {
  const char* qkv = "attention_bias";
  const char* attention_output = "attention_bias";
  const char* mlp = "mlp_bias";
};

// How config.json says which layers have a window.
enum class WindowRule : std::uint8_t {
  None,       // no layer; a window is refused
  Always,     // every layer has `sliding_window`, if it is not null
  Alternate,  // layer_types, or every n-th layer has none
  Listed,     // the same, if `sliding_window` is not null
  OnRequest,  // use_sliding_window, and layer_types or max_window_layers
  ByList,     // layer_types alone
};

struct ModelFamily {
  std::string_view architecture;  // Hugging Face class name
  std::string_view model_type;    // identifies the family if "architectures" is missing
  ModelTraits traits;
  ConfigDefaults defaults = {};
  TensorNames tensors = TensorNames::Llama;
  ConfigKeys keys = ConfigKeys::Llama;
  // Keys of config.json whose names differ; null = there is none.
  const char* norm_eps_key = "rms_norm_eps";
  const char* activation_key = "hidden_act";
  ExpertKeys expert_keys = {};
  BiasKeys biases = {};
  const char* qk_norm_key = nullptr;   // whether queries and keys are normalised
  const char* parallel_key = nullptr;  // whether a layer's MLP is parallel to attention
  WindowRule windows = WindowRule::None;
  std::int64_t window_default = 0;      // if the file has no sliding_window; 0 = none
  std::int64_t window_interval = 0;     // Alternate, Listed: n, if the file does not say it; 0 =
                                        // every layer has the window
  double local_rope_theta = 0;          // window layers have a base of their own; 0 = they do not
  std::int64_t unrotated_interval = 0;  // every n-th layer has no RoPE; 0 = all have it
  bool floors_head_dim = false;         // heads need not divide hidden_size
  bool rotates_windows_only = false;    // with windows, the other layers have no RoPE
  bool has_partial_rotation = false;    // partial_rotary_factor may be below 1
  bool has_multipliers = false;         // Granite's, of embeddings, residuals, scores and logits
  bool is_nested = false;               // the language model is under text_config
  // Its language model is of the family that text_config.model_type names, with the same traits.
  bool is_wrapper = false;
  bool has_experts = false;
  bool has_vision = false;            // a tower under vision_config, and M-RoPE
  bool has_linear_attention = false;  // layer_types or full_attention_interval, and linear_* keys
};

// In the order in which messages list them.
std::span<const ModelFamily> model_families();
// Null: no family has that class name.
const ModelFamily* find_family(std::string_view architecture);
// "LlamaForCausalLM, MistralForCausalLM, ..."
std::string computed_architectures();

}  // namespace metronome
