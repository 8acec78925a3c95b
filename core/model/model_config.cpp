// SPDX-License-Identifier: Apache-2.0
#include "core/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/core.h>
#include <vector>

#include "core/model/model_family.h"
#include "core/model/shape_bounds.h"
#include "core/model/vision_shape.h"

namespace metronome {
namespace {

// The error of the first number out of its bounds; empty if there is none.
std::string number_error(const ModelConfig& model) {
  struct Bound {
    const char* key;
    double value;
    double min;
    double max;
  };
  // Wide enough for any model, and every bound is a normal float.
  constexpr double kMaxTheta = 1e18;
  constexpr double kMaxFactor = 1e6;
  const RopeScaling& scaling = model.rope_scaling;
  const Bound bounds[] = {
      {"norm_eps", model.norm_eps, 1e-20, 1},
      {"rope_theta", model.rope_theta, 1, kMaxTheta},
      {"rope_local_theta", model.rope_local_theta == 0 ? 1 : model.rope_local_theta, 1, kMaxTheta},
      {"query_pre_attn_scalar", model.query_pre_attn_scalar == 0 ? 1 : model.query_pre_attn_scalar,
       1e-6, 1e9},
      {"attention_multiplier", model.attention_multiplier, 0, 1e6},
      {"attention_softcap", model.attention_softcap, 0, 1e6},
      {"logit_softcap", model.logit_softcap, 0, 1e6},
      {"embedding_multiplier", model.embedding_multiplier, 1e-6, 1e6},
      {"residual_multiplier", model.residual_multiplier, 1e-6, 1e6},
      {"logit_divisor", model.logit_divisor, 1e-6, 1e6},
      {"qkv_clip", model.qkv_clip, 0, 1e6},
      {"query_scale_beta", model.query_scale_beta, 0, 1e6},
      {"expert_scale", model.expert_scale, 1e-6, 1e6},
      {"rope_scaling.factor", scaling.factor, 1, kMaxFactor},
      {"rope_scaling.low_freq_factor", scaling.low_freq_factor, 1e-6, kMaxFactor},
      {"rope_scaling.high_freq_factor", scaling.high_freq_factor, 1e-6, kMaxFactor},
      {"rope_scaling.beta_fast", scaling.beta_fast, 1e-6, kMaxFactor},
      {"rope_scaling.beta_slow", scaling.beta_slow, 1e-6, kMaxFactor},
      {"rope_scaling.attention_factor", scaling.attention_factor, 1e-6, kMaxFactor},
  };
  for (const Bound& bound : bounds) {
    // This form makes NaN fail.
    if (bound.value >= bound.min && bound.value <= bound.max) continue;
    char text[128];
    std::snprintf(text, sizeof text, ": is %g; allowed: %g to %g", bound.value, bound.min,
                  bound.max);
    return std::string(bound.key) + text;
  }
  return {};
}

// LongRope's factors: one for each pair, each a number that can divide.
std::string factors_error(const char* key, const std::vector<double>& factors,
                          std::int64_t num_pairs) {
  const std::string name = std::string("rope_scaling.") + key;
  if (static_cast<std::int64_t>(factors.size()) != num_pairs) {
    return fmt::format("{}: has {} entries; allowed: {}, one for each pair that RoPE rotates", name,
                       factors.size(), num_pairs);
  }
  for (const double factor : factors) {
    if (!(factor >= 1e-6 && factor <= 1e6)) {
      return fmt::format("{}: contains {}; allowed: 1e-6 to 1e6", name, std::to_string(factor));
    }
  }
  return {};
}

std::string scaling_error(const ModelConfig& model) {
  const RopeScaling& scaling = model.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::LongRope) {
    const std::int64_t num_pairs = model.num_rotated() / 2;
    const std::string error = factors_error("short_factors", scaling.short_factors, num_pairs);
    return error.empty() ? factors_error("long_factors", scaling.long_factors, num_pairs) : error;
  }
  if (scaling.kind == RopeScaling::Kind::None && scaling.factor != 1) {
    return "rope_scaling.factor: has no meaning without a kind of scaling; allowed: 1";
  }
  if (scaling.low_freq_factor >= scaling.high_freq_factor) {
    return "rope_scaling.low_freq_factor: is not below high_freq_factor; allowed: a number below "
           "it";
  }
  return {};
}

std::string experts_error(const ModelConfig& model) {
  if (model.n_experts == 0) {
    const bool has_none =
        model.n_experts_per_token == 0 && model.expert_ffn_dim == 0 && model.n_dense_layers == 0;
    return has_none ? "" : "n_experts: is 0, but other keys set experts; allowed: at least 1";
  }
  if (model.n_experts_per_token < 1 || model.n_experts_per_token > model.n_experts) {
    return fmt::format("n_experts_per_token: is {}; allowed: 1 to n_experts, {}",
                       model.n_experts_per_token, model.n_experts);
  }
  // Together with the bounds of the other dimensions this prevents overflow of every count.
  constexpr std::int64_t kMaxWidth = 1 << 24;
  if (model.expert_ffn_dim < 1 || model.expert_ffn_dim > kMaxWidth / model.n_experts) {
    return fmt::format("expert_ffn_dim: is {}; allowed: 1 to {} with {} experts",
                       model.expert_ffn_dim, kMaxWidth / model.n_experts, model.n_experts);
  }
  if (model.n_dense_layers >= model.n_layers) {
    return fmt::format("n_dense_layers: is {}; allowed: fewer than n_layers, {}",
                       model.n_dense_layers, model.n_layers);
  }
  const auto num_listed = static_cast<std::int64_t>(model.dense_layers.size());
  if (num_listed != 0 && num_listed != model.n_dense_layers) {
    return fmt::format("dense_layers: lists {} layers; allowed: n_dense_layers of them, {}",
                       num_listed, model.n_dense_layers);
  }
  return {};
}

// A list of layers: ascending, each of the model.
std::string layers_error(const ModelConfig& model) {
  struct NamedLayers {
    const char* key;
    const std::vector<std::int64_t>& listed;
  };
  for (const NamedLayers& layers :
       {NamedLayers{"window_layers", model.window_layers},
        NamedLayers{"dense_layers", model.dense_layers},
        NamedLayers{"unrotated_layers", model.unrotated_layers},
        NamedLayers{"linear_attention.layers", model.linear_attention.layers}}) {
    const std::string error = ascending_error(layers.key, layers.listed, model.n_layers);
    if (!error.empty()) return error;
  }
  if (model.sliding_window == 0 && !model.window_layers.empty()) {
    return "window_layers: has no meaning without sliding_window; allowed: an empty list";
  }
  return {};
}

bool contains(const std::vector<std::int64_t>& layers, std::int64_t layer) {
  return std::binary_search(layers.begin(), layers.end(), layer);
}

// Keeps the KV of a few tokens only.
bool is_window_kind(const LayerKind& kind) {
  const AttentionPart& attention = kind.attention;
  return attention.window > 0 && !attention.is_sparse && attention.stride == 1 &&
         !attention.shares_kv;
}

bool keeps_kv(const LayerKind& kind) {
  return !kind.attention.is_empty() && !kind.attention.shares_kv;
}

bool has_state(const LayerKind& kind) { return !kind.state.is_empty(); }

template <class Is>
std::int64_t count_layers(const ModelConfig& model, Is is) {
  std::int64_t count = 0;
  for (const LayerKind& kind : model.given_kinds) count += is(kind) ? kind.count() : 0;
  return count;
}

// Whether the layer's kind is such.
template <class Is>
bool any_kind_of(const ModelConfig& model, std::int64_t layer, Is is) {
  return std::any_of(
      model.given_kinds.begin(), model.given_kinds.end(),
      [&](const LayerKind& kind) { return is(kind) && contains(kind.layers, layer); });
}

std::string parts_error(const ModelConfig& model) {
  const LinearAttention& linear = model.linear_attention;
  if (!linear.is_empty()) {
    const IntegerBound bounds[] = {
        within_range("linear_attention.n_key_heads", linear.n_key_heads),
        within_range("linear_attention.n_value_heads", linear.n_value_heads),
        within_range("linear_attention.key_head_dim", linear.key_head_dim),
        within_range("linear_attention.value_head_dim", linear.value_head_dim),
        within_range("linear_attention.conv_width", linear.conv_width),
    };
    if (const std::string error = bounds_error(bounds); !error.empty()) return error;
    if (linear.n_value_heads % linear.n_key_heads != 0) {
      return fmt::format(
          "linear_attention.n_value_heads: is {}; allowed: a multiple of n_key_heads, {}",
          linear.n_value_heads, linear.n_key_heads);
    }
    const auto is_shared = [&linear](std::int64_t layer) { return contains(linear.layers, layer); };
    if (model.sliding_window > 0 &&
        (model.window_layers.empty() ||
         std::any_of(model.window_layers.begin(), model.window_layers.end(), is_shared))) {
      return "window_layers: names no layers beside those of linear_attention; allowed: a list of "
             "other layers";
    }
  }
  const LatentAttention& latent = model.latent_attention;
  const IntegerBound sizes[] = {
      within_range("latent_attention.kv_rank", latent.kv_rank),
      within_range("latent_attention.q_rank", latent.q_rank),
      within_range("latent_attention.nope_dim", latent.nope_dim),
      within_range("latent_attention.rope_dim", latent.rope_dim),
      within_range("latent_attention.value_dim", latent.value_dim),
  };
  if (std::string error = bounds_error(sizes); !error.empty()) return error;
  std::int64_t num_pairs = 0;
  for (const std::int64_t pairs : model.mrope_sections) num_pairs += pairs;
  if (!model.mrope_sections.empty() &&
      (model.mrope_sections.size() != 3 || num_pairs != model.num_rotated() / 2)) {
    return fmt::format("mrope_sections: add up to {} in {} parts; allowed: 3 parts of {} pairs",
                       num_pairs, model.mrope_sections.size(), model.num_rotated() / 2);
  }
  return {};
}

// The fault of experts that routers do not choose, "key: fault; what is allowed"; empty: none.
std::string router_refusal(const ModelConfig& model) {
  if (model.n_experts == 0) return {};
  if (model.has_sparse_mixer && model.n_experts_per_token != 2) {
    return fmt::format("n_experts_per_token: is {}, but SparseMixer chooses two; allowed: 2",
                       model.n_experts_per_token);
  }
  const std::int64_t num_groups = model.n_expert_groups;
  if (num_groups <= 1) return {};  // shape_error() names a number below 1
  const std::int64_t size = model.n_experts / num_groups;
  if (model.n_experts % num_groups != 0 || (model.has_paired_groups && size < 2)) {
    return fmt::format(
        "n_expert_groups: {} groups of {} experts are only simulated; allowed: groups of equally "
        "many experts, at least two",
        num_groups, model.n_experts);
  }
  if (model.n_experts_per_token > model.n_groups_per_token * size) {
    return fmt::format(
        "n_groups_per_token: have fewer experts than compute a token; allowed: enough for {} "
        "experts",
        model.n_experts_per_token);
  }
  return {};
}

}  // namespace

bool ModelConfig::is_window_layer(std::int64_t layer) const {
  if (!given_kinds.empty()) return any_kind_of(*this, layer, is_window_kind);
  if (sliding_window == 0) return false;
  if (!window_layers.empty()) return contains(window_layers, layer);
  return global_layer_interval == 0 || (layer + 1) % global_layer_interval != 0;
}

bool ModelConfig::is_linear_layer(std::int64_t layer) const {
  if (!given_kinds.empty()) return any_kind_of(*this, layer, has_state);
  return contains(linear_attention.layers, layer);
}

std::int64_t ModelConfig::n_linear_layers() const {
  if (!given_kinds.empty()) return count_layers(*this, has_state);
  return static_cast<std::int64_t>(linear_attention.layers.size());
}

std::int64_t ModelConfig::n_attention_layers() const {
  if (!given_kinds.empty()) return count_layers(*this, keeps_kv);
  return n_layers - n_linear_layers();
}

std::int64_t ModelConfig::n_global_layers() const {
  if (!given_kinds.empty()) return n_attention_layers() - count_layers(*this, is_window_kind);
  const std::int64_t num_layers = n_attention_layers();
  if (sliding_window == 0) return num_layers;
  if (!window_layers.empty()) return num_layers - static_cast<std::int64_t>(window_layers.size());
  return global_layer_interval == 0 ? 0 : n_layers / global_layer_interval;
}

std::int64_t ModelConfig::n_window_layers() const {
  return n_attention_layers() - n_global_layers();
}

std::int64_t ModelConfig::n_moe_layers() const {
  if (n_experts == 0) return 0;
  if (given_kinds.empty()) return n_layers - n_dense_layers;
  return count_layers(*this, [](const LayerKind& kind) { return kind.has_experts; });
}

bool ModelConfig::has_latent_attention() const {
  const auto is_latent = [](const LayerKind& kind) { return !kind.attention.latent.is_empty(); };
  return !latent_attention.is_empty() ||
         std::any_of(given_kinds.begin(), given_kinds.end(), is_latent);
}

double ModelConfig::n_whole_layers() const {
  if (given_kinds.empty()) return static_cast<double>(n_layers);
  std::int64_t halves = 0;
  for (const LayerKind& kind : given_kinds) {
    halves += kind.count() * ((kind.has_mixer() ? 1 : 0) + (kind.has_mlp() ? 1 : 0));
  }
  return 0.5 * static_cast<double>(halves);
}

std::int64_t ModelConfig::default_max_model_len() const {
  using Kind = RopeScaling::Kind;
  const std::int64_t original = rope_scaling.original_max_positions;
  if (rope_scaling.kind == Kind::LongRope) return std::min(original, max_position_embeddings);
  const bool is_yarn = rope_scaling.kind == Kind::Yarn;
  const bool is_stretched = is_yarn || rope_scaling.kind == Kind::Linear;
  if (!is_stretched || rope_local_theta != 0) return max_position_embeddings;
  constexpr double kMost = 1 << 30;  // as of max_position_embeddings
  const auto trained = static_cast<double>(is_yarn ? original : max_position_embeddings);
  return static_cast<std::int64_t>(std::min(trained * rope_scaling.factor, kMost));
}

std::int64_t ModelConfig::max_context() const {
  return std::max(max_position_embeddings, default_max_model_len());
}

bool ModelConfig::is_moe_layer(std::int64_t layer) const {
  if (n_experts == 0) return false;
  if (!given_kinds.empty()) {
    return any_kind_of(*this, layer, [](const LayerKind& kind) { return kind.has_experts; });
  }
  return dense_layers.empty() ? layer >= n_dense_layers : !contains(dense_layers, layer);
}

bool ModelConfig::is_rotated_layer(std::int64_t layer) const {
  return !has_learned_positions && !contains(unrotated_layers, layer);
}

std::string ModelConfig::shape_error() const {
  const std::int64_t shared_max = n_experts > 0 ? shape_range("expert_ffn_dim")->max : 0;
  const IntegerBound bounds[] = {
      within_range("n_layers", n_layers),
      within_range("hidden_dim", hidden_dim),
      within_range("n_heads", n_heads),
      within_range("n_kv_heads", n_kv_heads),
      within_range("head_dim", head_dim),
      within_range("ffn_dim", ffn_dim),
      within_range("n_experts", n_experts),
      within_range("n_experts_per_token", n_experts_per_token),
      within_range("expert_ffn_dim", expert_ffn_dim),
      within_range("n_dense_layers", n_dense_layers),
      {"shared_expert_ffn_dim", shared_expert_ffn_dim, 0, shared_max},
      {"n_expert_groups", n_expert_groups, 1, std::max<std::int64_t>(1, n_experts)},
      {"n_groups_per_token", n_groups_per_token, 1, n_expert_groups},
      within_range("vocab_size", vocab_size),
      within_range("max_position_embeddings", max_position_embeddings),
      within_range("sliding_window", sliding_window),
      within_range("global_layer_interval", global_layer_interval),
      {"rotary_dim", rotary_dim, 0, head_dim},
      {"query_scale_positions", query_scale_positions, query_scale_beta > 0 ? 1 : 0, 1 << 30},
      within_range("bytes_per_weight", bytes_per_weight),
      within_range("int4_group_size", int4_group_size),
      within_range("bytes_per_kv_element", bytes_per_kv_element),
      within_range("rope_scaling.original_max_positions", rope_scaling.original_max_positions),
  };
  std::string error = bounds_error(bounds);
  if (!error.empty()) return error;
  if (n_heads % n_kv_heads != 0) {
    return fmt::format("n_kv_heads: {} does not divide n_heads {}; allowed: a divisor of n_heads",
                       n_kv_heads, n_heads);
  }
  if (n_experts == 0 && expert_format != WeightFormat::Plain) {
    return "expert_format: has no meaning without experts; allowed: plain";
  }
  if (sliding_window == 0 && global_layer_interval != 0) {
    return "global_layer_interval: has no meaning without sliding_window; allowed: 0";
  }
  for (const std::int32_t id : eos_token_ids) {
    if (id < 0) {
      return fmt::format("eos_token_ids: contains {}; allowed: token ids, at least 0", id);
    }
  }
  error = experts_error(*this);
  if (error.empty()) error = layers_error(*this);
  if (error.empty()) error = parts_error(*this);
  if (error.empty()) error = vision_error(vision, n_layers, vocab_size);
  if (error.empty()) error = number_error(*this);
  return error.empty() ? scaling_error(*this) : error;
}

void apply_architecture(ModelConfig& model) {
  if (!model.given_kinds.empty()) return;  // read with what its file says
  const ModelFamily* const family = find_family(model.architecture);
  ModelTraits traits = family == nullptr ? ModelTraits{} : family->traits;
  traits.has_qk_norm = model.has_qk_norm;
  traits.has_post_norms = model.has_post_norms;
  static_cast<ModelTraits&>(model) = traits;
  if (family == nullptr) {
    model.unsupported = "architecture: '" + model.architecture +
                        "' is not supported; allowed: " + computed_architectures();
  } else if (model.sliding_window > 0 && family->has_linear_attention) {
    model.unsupported = "sliding_window: is only simulated beside linear attention; allowed: 0";
  } else if (!model.has_learned_positions && model.num_rotated() % 2 != 0) {
    model.unsupported =
        fmt::format("{}: {} is odd, but RoPE rotates pairs; allowed: an even number",
                    model.rotary_dim > 0 ? "rotary_dim" : "head_dim", model.num_rotated());
  }
  const LatentAttention& latent = model.latent_attention;
  if (!latent.is_empty() && (latent.nope_dim == 0 || latent.rope_dim == 0)) {
    model.refuse(latent.nope_dim == 0 ? "latent_attention.nope_dim" : "latent_attention.rope_dim",
                 "is 0, which is only simulated; allowed: at least 1");
  }
  if (model.unsupported.empty()) model.unsupported = router_refusal(model);
  if (model.is_quantised()) {
    model.refuse("linear_format, expert_format",
                 "quantised weights are not supported; allowed: plain");
  }
}

}  // namespace metronome
