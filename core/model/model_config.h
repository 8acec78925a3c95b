// The shape of a decoder-only transformer. Cost models, KV sizes and executors depend on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/weight_format.h"

namespace metronome {

// How rotary embeddings (RoPE) extend beyond the positions of the model's first training. Formulas:
// transformers' modeling_rope_utils.py.
struct RopeScaling {
  enum class Kind : std::uint8_t {
    None,
    Linear,  // divides every frequency by `factor`
    Llama3,  // scales only long wavelengths, with a smooth transition
  };
  Kind kind = Kind::None;
  double factor = 1;
  // Llama3: wavelengths above original_max_positions / low_freq_factor are scaled. Wavelengths
  // below original_max_positions / high_freq_factor are not.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_positions = 8192;

  bool operator==(const RopeScaling&) const = default;
};

enum class Activation : std::uint8_t {
  Silu,
  GeluTanh,  // the tanh approximation
};

struct ModelConfig {
  std::string name;
  std::string architecture;  // Hugging Face class name, e.g. LlamaForCausalLM
  std::int64_t n_layers = 0;
  std::int64_t hidden_dim = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_dim = 0;
  // Mixture of experts. A MoE layer replaces the MLP of width ffn_dim by n_experts MLPs of width
  // expert_ffn_dim. A router picks n_experts_per_token of them for each token. All layers but
  // `n_dense_layers` are MoE layers.
  std::int64_t n_experts = 0;  // 0 = none
  std::int64_t n_experts_per_token = 0;
  std::int64_t expert_ffn_dim = 0;
  std::int64_t n_dense_layers = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  bool has_tied_embeddings = false;
  bool has_qk_norm = false;
  bool has_post_norms = false;      // Gemma: four norms per layer instead of two
  std::int64_t sliding_window = 0;  // tokens; 0 = every layer attends to the whole context
  // With a window: layer i (from 0) is global when (i + 1) % global_layer_interval == 0.
  std::int64_t global_layer_interval = 0;

  // Parameters of the arithmetic; the cost models do not read them.
  double norm_eps = 1e-6;
  double rope_theta = 10000;         // base of the layers without a window
  double rope_local_theta = 0;       // base of the window layers; 0 = rope_theta
  RopeScaling rope_scaling;          // not for window layers with their own base
  double query_pre_attn_scalar = 0;  // attention scores are divided by its square root; 0 =
                                     // head_dim
  Activation activation = Activation::Silu;
  bool has_unit_offset_norms = false;       // Gemma: norms scale by 1 + weight
  bool scales_embeddings = false;           // Gemma: embeddings times sqrt(hidden_dim)
  std::vector<std::int32_t> eos_token_ids;  // end of text; empty = unknown
  // The settings that no executor can compute, as "key: what; what is allowed"; empty: nothing.
  std::string unsupported;

  std::int64_t bytes_per_weight = 2;  // of embeddings, head, norms, routers and plain layers
  WeightFormat linear_format = WeightFormat::Plain;  // attention projections and dense MLPs
  WeightFormat expert_format = WeightFormat::Plain;
  std::int64_t bytes_per_kv_element = 2;

  // Whether a layer (from 0) attends to sliding_window tokens only.
  bool is_window_layer(std::int64_t layer) const;
  std::int64_t n_global_layers() const;  // layers that attend to the whole context
  std::int64_t n_window_layers() const;  // n_layers - n_global_layers()
  std::int64_t n_moe_layers() const { return n_experts > 0 ? n_layers - n_dense_layers : 0; }
  // Weights multiplied with every token: QKV, output, gate, up and down projections and routers of
  // all layers, without experts.
  std::int64_t n_linear_params() const { return n_projection_params() + n_router_params(); }
  std::int64_t n_projection_params() const;  // of these, those stored in linear_format
  std::int64_t n_router_params() const { return n_moe_layers() * hidden_dim * n_experts; }
  std::int64_t n_expert_params() const;     // gate, up and down of one expert of one layer
  std::int64_t n_embedding_params() const;  // one table; the output head has as many
  std::int64_t n_norm_params() const;       // scales of all normalisations
  std::int64_t n_params() const;            // everything, norms included
  double bytes_per_linear_weight() const { return bytes_of(linear_format, bytes_per_weight); }
  double bytes_per_expert_weight() const { return bytes_of(expert_format, bytes_per_weight); }
  std::int64_t weight_bytes() const;
  std::int64_t kv_bytes_per_token() const;  // all layers, K and V

  // The first error in the shape or in a number, as "key: what is wrong; what is allowed". If it is
  // empty, every count above fits in 64 bits and every number is finite.
  std::string shape_error() const;

  bool operator==(const ModelConfig&) const = default;
};

// Sets the properties that the model code of `architecture` fixes: activation, unit-offset norms
// and the scale of embeddings. Sets `unsupported` if no executor computes the architecture or
// shape.
void apply_architecture(ModelConfig& model);

}  // namespace metronome
