// SPDX-License-Identifier: Apache-2.0
// The shape of a decoder-only transformer. Cost models, KV sizes and executors depend on it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/model/layer_kind.h"
#include "core/model/layer_parts.h"
#include "core/model/model_traits.h"
#include "core/model/weight_format.h"

namespace metronome {

// How rotary embeddings (RoPE) extend beyond the positions of the model's first training. Formulas:
// transformers' modeling_rope_utils.py.
struct RopeScaling {
  enum class Kind : std::uint8_t {
    None,
    Linear,    // divides every frequency by `factor`
    Llama3,    // scales only long wavelengths, with a smooth transition
    Yarn,      // the same by another rule, and scales cosines and sines
    LongRope,  // divides each frequency by a factor of its own, and scales cosines and sines
  };
  Kind kind = Kind::None;
  double factor = 1;
  // Llama3: wavelengths above original_max_positions / low_freq_factor are scaled. Wavelengths
  // below original_max_positions / high_freq_factor are not.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_positions = 8192;
  // Yarn: frequencies with more turns than beta_fast in the original positions are kept, those with
  // fewer than beta_slow are divided. `truncates` rounds the bounds between them to whole pairs.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncates = true;
  // Yarn, LongRope: cosines and sines are multiplied by it.
  double attention_factor = 1;
  // LongRope: a divisor for each pair. The long ones are for contexts that may exceed
  // original_max_positions.
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};
  bool uses_long_factors = false;

  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig : ModelTraits {
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
  std::int64_t shared_expert_ffn_dim = 0;  // an expert of each MoE layer that sees all tokens; 0 =
                                           // none
  // The router first picks n_groups_per_token of n_expert_groups groups of experts.
  std::int64_t n_expert_groups = 1;
  std::int64_t n_groups_per_token = 1;
  double expert_scale = 1;  // of the sum of a token's experts
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  bool has_tied_embeddings = false;
  std::int64_t sliding_window = 0;  // tokens; 0 = every layer attends to the whole context
  // With a window: layer i (from 0) is global when (i + 1) % global_layer_interval == 0.
  std::int64_t global_layer_interval = 0;
  // Layers by number, ascending, where no interval describes them.
  std::vector<std::int64_t> window_layers;  // empty: by global_layer_interval
  std::vector<std::int64_t> dense_layers;   // empty: the first n_dense_layers

  LinearAttention linear_attention;
  LatentAttention latent_attention;  // of every layer, instead of n_kv_heads and head_dim
  // The kinds of layers where the numbers above cannot describe them: no executor computes such a
  // model. The numbers are then those of the first layer that attends, of the widest MLP and of the
  // widest window. Empty: layer_kinds() derives them.
  std::vector<LayerKind> given_kinds;
  std::int64_t expert_hidden_dim = 0;  // that experts read and write; 0 = hidden_dim
  // Weights that steps of text do not read, beside those of `vision`: of towers, and of tables and
  // others that only some models have.
  std::int64_t tower_params = 0;
  std::int64_t extra_params = 0;
  // Weights of experts of attention that a token does not pick.
  std::int64_t idle_params = 0;
  // Weights of layers that use those of another one: they compute, but take no memory.
  std::int64_t repeated_params = 0;
  VisionTower vision;
  // Qwen's M-RoPE: pairs that turn by time, height and width; empty = all by one position. They
  // alternate while they last.
  std::vector<std::int64_t> mrope_sections;

  // Parameters of the arithmetic; the cost models do not read them.
  double norm_eps = 1e-6;
  double rope_theta = 10000;    // base of the layers without a window
  double rope_local_theta = 0;  // base of the window layers; 0 = rope_theta
  RopeScaling rope_scaling;     // not for window layers with their own base
  std::int64_t rotary_dim = 0;  // RoPE rotates the first elements of a head; 0 = head_dim
  std::vector<std::int64_t> unrotated_layers;  // layers without RoPE, ascending
  double query_pre_attn_scalar = 0;  // attention scores are divided by its square root; 0 =
                                     // head_dim
  double attention_multiplier = 0;   // scores are multiplied by it instead; 0 = by the line above
  // x becomes cap * tanh(x / cap); 0 = no cap.
  double attention_softcap = 0;  // of scores
  double logit_softcap = 0;
  double embedding_multiplier = 1;
  double residual_multiplier = 1;  // of what attention and MLP add
  double logit_divisor = 1;
  double qkv_clip = 0;  // queries, keys and values stay within it of 0; 0 = no bounds
  // A query at position p is multiplied by 1 + beta * ln(1 + floor(p / positions)); 0 = it is not.
  double query_scale_beta = 0;
  std::int64_t query_scale_positions = 0;
  std::vector<std::int32_t> eos_token_ids;  // end of text; empty = unknown
  // About an unknown architecture: its kinds of layers, and what was assumed. Empty: it is known.
  std::string approximation;
  std::string keys_read;  // of its file, with commas between
  // The settings that no executor can compute, as "key: what; what is allowed"; empty: nothing.
  std::string unsupported;

  std::int64_t bytes_per_weight = 2;  // of embeddings, head, norms, routers and plain layers
  WeightFormat linear_format = WeightFormat::Plain;  // attention projections and dense MLPs
  // Of dense MLPs and shared experts, where attention alone is in linear_format.
  std::optional<WeightFormat> mlp_format;
  WeightFormat expert_format = WeightFormat::Plain;
  std::int64_t int4_group_size = 128;  // weights that share a scale in int4; 0 = a whole channel
  // Where a file says formats that the three above cannot; they are then those of the most weights.
  // Else empty.
  std::vector<ModuleFormat> module_formats;
  std::int64_t bytes_per_kv_element = 2;

  // Whether a layer (from 0) attends to sliding_window tokens only.
  bool is_window_layer(std::int64_t layer) const;
  bool is_linear_layer(std::int64_t layer) const;  // keeps a state
  std::int64_t n_linear_layers() const;            // that keep a state
  std::int64_t n_attention_layers() const;         // that attend
  std::int64_t n_global_layers() const;            // of these, to the whole context
  std::int64_t n_window_layers() const;            // n_attention_layers() - n_global_layers()
  std::int64_t n_moe_layers() const;
  bool has_states() const { return n_linear_layers() > 0; }
  bool has_latent_attention() const;
  // Layers, where one without a mixer or without an MLP counts half.
  double n_whole_layers() const;
  // The longest request where nothing else is said, in tokens, as in vLLM (config/model.py). Linear
  // scaling and YaRN stretch the positions that the model was trained with; files with scaling in
  // the layers without a window only (rope_local_theta) say the stretched length. LongRoPE: the
  // original positions, since longer contexts have other factors.
  std::int64_t default_max_model_len() const;
  // The longest request that may be asked for.
  std::int64_t max_context() const;
  bool is_moe_layer(std::int64_t layer) const;
  bool is_rotated_layer(std::int64_t layer) const;  // queries and keys get RoPE
  std::int64_t num_rotated() const { return rotary_dim > 0 ? rotary_dim : head_dim; }
  std::int64_t query_dim() const { return n_heads * head_dim; }
  std::int64_t kv_dim() const { return n_kv_heads * head_dim; }
  // Norms of a layer, those of queries and keys apart.
  std::int64_t n_layer_norms() const {
    return (has_pre_norms ? (has_mlp_norm() ? 2 : 1) : 0) + (has_post_norms ? 2 : 0);
  }
  // Matrices of an MLP: gate, up and down, or up and down.
  std::int64_t n_mlp_matrices() const { return has_gated_mlp ? 3 : 2; }
  // Weights multiplied with every token: projections of attention and states, MLPs, shared experts
  // and routers of all layers, without experts.
  std::int64_t n_linear_params() const { return n_projection_params() + n_router_params(); }
  std::int64_t n_projection_params() const;  // of these, all but routers
  // Projections of dense MLPs and shared experts, and those that lead to experts and back.
  std::int64_t n_mlp_params() const;
  // Routers, and the gates of shared experts.
  std::int64_t n_router_params() const {
    return n_moe_layers() * hidden_dim * (n_experts + (has_shared_expert_gate ? 1 : 0));
  }
  std::int64_t n_expert_params() const;     // the matrices of one expert of one layer
  std::int64_t n_embedding_params() const;  // one table; the output head has as many
  std::int64_t n_position_params() const;   // the table of learned positions
  // Norms, biases, convolutions and decays of all layers, and the last norm.
  std::int64_t n_small_params() const;
  std::int64_t n_params() const;  // everything, norms and the vision tower included
  // Parameters that a token of text is computed with: no towers, and the experts that it picks.
  std::int64_t n_active_params() const;
  // Means of attention and states, of dense MLPs and shared experts, of experts.
  double bytes_per_linear_weight() const { return mean_bytes(kAttentionModules); }
  double bytes_per_mlp_weight() const { return mean_bytes(kMlpModules); }
  double bytes_per_expert_weight() const { return mean_bytes(kExpertModules); }
  double bytes_per_head_weight() const;
  // The formats of these modules' weights; at least one.
  std::vector<FormatShare> formats_of(std::span<const ModuleKind> kinds) const;
  double mean_bytes(std::span<const ModuleKind> kinds) const;
  // Whether MLPs may have other formats than attention.
  bool has_mlp_formats() const { return mlp_format || !module_formats.empty(); }
  bool is_quantised() const;
  // Stores projections and experts in one format; mxfp4 in those of experts alone.
  void store_as(WeightFormat format);
  std::int64_t weight_bytes() const;
  std::int64_t table_bytes() const;         // of embeddings and a head of its own
  std::int64_t kv_bytes_per_token() const;  // all layers that attend: K and V, and an index
  std::int64_t state_bytes() const;         // of one request, all layers

  // Records in `unsupported` what no executor computes, unless something else is there.
  void refuse(const std::string& key, const std::string& message) {
    if (unsupported.empty()) unsupported = key + ": " + message;
  }

  // The first error in the shape or in a number, as "key: what is wrong; what is allowed". If it is
  // empty, every count above fits in 64 bits and every number is finite.
  std::string shape_error() const;

  bool operator==(const ModelConfig&) const = default;
};

// Sets the traits that the model code of `architecture` fixes, but for has_qk_norm and
// has_post_norms, which an entry of the catalogue says. Sets `unsupported` if no executor computes
// the architecture or shape.
void apply_architecture(ModelConfig& model);

// The kinds of the model's layers, by their first layer.
std::vector<LayerKind> layer_kinds(const ModelConfig& model);
// Weights of a layer of the model: its dense MLP and shared expert, what leads to experts and back,
// and further products.
std::int64_t mlp_params(const ModelConfig& model, const LayerParts& layer);
// Bytes that such a layer of the model caches of a token, the index among them: a mean where an
// entry stands for several tokens.
double kv_bytes(const ModelConfig& model, const AttentionPart& attention);

}  // namespace metronome
