// SPDX-License-Identifier: Apache-2.0
// The kinds of layers of a model, and the sizes of their parts; a part of model_config.h.
#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/model/layer_kind.h"
#include "core/model/model_config.h"

namespace metronome {
namespace {

// Norms of a layer that attends or has a state.
std::int64_t norm_params(const ModelConfig& model, bool has_state) {
  const LatentAttention& latent = model.latent_attention;
  std::int64_t scales = model.n_layer_norms() * model.hidden_dim;
  if (has_state) {
    scales += model.linear_attention.value_head_dim;
  } else {
    const bool is_each = model.has_whole_qk_norm || model.has_qk_norm_per_head;
    const std::int64_t of_heads = is_each ? model.query_dim() + model.kv_dim() : 2 * model.head_dim;
    scales += (model.has_qk_norm ? of_heads : 0) + latent.kv_rank + latent.q_rank;
  }
  if (!model.has_norm_weights) return 0;
  return model.has_norm_biases ? 2 * scales : scales;
}

std::int64_t attention_bias_params(const ModelConfig& model) {
  const std::int64_t query_rows =
      model.has_gated_attention ? 2 * model.query_dim() : model.query_dim();
  return (model.has_qkv_biases ? query_rows + 2 * model.kv_dim() : 0) +
         (model.has_attention_output_bias ? model.hidden_dim : 0) +
         (model.has_attention_sinks ? model.n_heads : 0);
}

std::int64_t mlp_bias_params(const ModelConfig& model, bool has_experts) {
  const auto of_width = [&model](std::int64_t width) {
    return (model.n_mlp_matrices() - 1) * width + model.hidden_dim;
  };
  const std::int64_t of_activation = model.activation == Activation::Xielu ? 2 : 0;
  if (!has_experts) {
    return of_activation + (model.has_mlp_biases ? of_width(model.ffn_dim) : 0);
  }
  return (model.has_expert_biases ? model.n_experts * of_width(model.expert_ffn_dim) : 0) +
         (model.has_router_biases || model.has_choice_bias ? model.n_experts : 0);
}

AttentionPart attention_of(const ModelConfig& model) {
  if (!model.latent_attention.is_empty()) {
    return latent_attention(model.hidden_dim, model.n_heads, model.latent_attention);
  }
  return grouped_attention(model.hidden_dim, model.n_heads, model.n_kv_heads, model.head_dim,
                           model.head_dim, model.has_gated_attention);
}

LayerParts parts_of_layer(const ModelConfig& model, std::int64_t layer) {
  LayerParts kind;
  const bool has_state = model.is_linear_layer(layer);
  if (has_state) {
    kind.state = gated_delta(model.hidden_dim, model.linear_attention);
  } else {
    kind.attention = attention_of(model);
    if (model.is_window_layer(layer)) kind.attention.window = model.sliding_window;
  }
  kind.has_experts = model.is_moe_layer(layer);
  if (!kind.has_experts) kind.ffn_dim = model.ffn_dim;
  kind.other_params = norm_params(model, has_state) +
                      (has_state ? 0 : attention_bias_params(model)) +
                      mlp_bias_params(model, kind.has_experts);
  return kind;
}

}  // namespace

std::int64_t AttentionPart::entry_elements() const {
  return latent.is_empty() ? n_kv_heads * cached_head_dim() : latent.cached_dim();
}

std::int64_t AttentionPart::index_bytes() const {
  constexpr std::int64_t kScaled = 128;
  constexpr std::int64_t kScaleBytes = 4;
  return index_dim + ceil_div(index_dim, kScaled) * kScaleBytes;
}

std::string LayerParts::name() const {
  std::string name;
  const auto add = [&name](const std::string& part) { name += (name.empty() ? "" : ", ") + part; };
  if (!attention.is_empty()) {
    std::string part = attention.latent.is_empty() ? "attention" : "latent attention";
    if (attention.window > 0) {
      part += fmt::format("{}{}{}", attention.is_sparse ? " to " : " to the last ",
                          attention.window, attention.is_sparse ? " chosen" : "");
    }
    if (attention.stride > 1) part += fmt::format(", 1 entry of {}", attention.stride);
    if (attention.shares_kv) part += ", KV of another layer";
    add(part);
  }
  if (!state.is_empty()) {
    add("state: " + std::string(kStateKindNames[static_cast<std::size_t>(state.kind)]));
  }
  if (has_experts) add("experts");
  if (ffn_dim > 0) add(fmt::format("MLP of {}", ffn_dim));
  return name.empty() ? "nothing" : name;
}

AttentionPart grouped_attention(std::int64_t hidden_dim, std::int64_t n_heads,
                                std::int64_t n_kv_heads, std::int64_t head_dim,
                                std::int64_t value_dim, bool has_gate) {
  AttentionPart shape{.n_heads = n_heads,
                      .n_kv_heads = n_kv_heads,
                      .head_dim = head_dim,
                      .value_dim = value_dim,
                      .latent = {}};
  const std::int64_t outputs = n_heads * value_dim;
  shape.in_params = hidden_dim * (n_heads * head_dim + n_kv_heads * (head_dim + value_dim) +
                                  (has_gate ? outputs : 0));
  shape.out_params = outputs * hidden_dim;
  return shape;
}

AttentionPart latent_attention(std::int64_t hidden_dim, std::int64_t n_heads,
                               const LatentAttention& latent) {
  AttentionPart shape{.n_heads = n_heads,
                      .n_kv_heads = n_heads,
                      .head_dim = latent.nope_dim + latent.rope_dim,
                      .value_dim = latent.value_dim,
                      .latent = latent};
  const std::int64_t queries = n_heads * shape.head_dim;
  const std::int64_t from_queries =
      latent.q_rank == 0 ? hidden_dim * queries : latent.q_rank * (hidden_dim + queries);
  shape.in_params = from_queries + hidden_dim * latent.cached_dim() +
                    latent.kv_rank * n_heads * (latent.nope_dim + latent.value_dim);
  shape.out_params = n_heads * latent.value_dim * hidden_dim;
  shape.whole_params = hidden_dim * (latent.q_rank + latent.cached_dim());
  return shape;
}

StatePart gated_delta(std::int64_t hidden_dim, const LinearAttention& linear) {
  return {.kind = StateKind::GatedDelta,
          .n_heads = linear.n_value_heads,
          .key_dim = linear.key_head_dim,
          .value_dim = linear.value_head_dim,
          .conv_width = linear.conv_width,
          .conv_channels = linear.conv_channels(),
          .bytes_per_element = linear.bytes_per_delta_element,
          .bytes_per_conv_element = linear.bytes_per_conv_element,
          .n_groups = linear.n_key_heads,
          // The convolution reads and writes its channels, the gated norm reads two vectors and
          // writes one.
          .moved_elements = 2 * linear.conv_channels() + 3 * linear.value_dim(),
          // Queries, keys, values and the output's gate; write strengths and decays.
          .in_params =
              hidden_dim * (linear.conv_channels() + linear.value_dim() + 2 * linear.n_value_heads),
          .out_params = linear.value_dim() * hidden_dim,
          .other_params = linear.conv_channels() * linear.conv_width + 2 * linear.n_value_heads};
}

std::vector<LayerKind> group_layers(const std::vector<LayerParts>& layers) {
  std::vector<LayerKind> kinds;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const LayerParts& parts = layers[layer];
    auto found = std::find_if(kinds.begin(), kinds.end(),
                              [&parts](const LayerParts& kind) { return kind == parts; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), LayerKind{parts, {}});
    found->layers.push_back(static_cast<std::int64_t>(layer));
  }
  return kinds;
}

std::vector<LayerKind> layer_kinds(const ModelConfig& model) {
  if (!model.given_kinds.empty()) return model.given_kinds;
  std::vector<LayerParts> layers;
  for (std::int64_t i = 0; i < model.n_layers; ++i) layers.push_back(parts_of_layer(model, i));
  return group_layers(layers);
}

std::int64_t mlp_params(const ModelConfig& model, const LayerParts& layer) {
  const std::int64_t mlp = model.n_mlp_matrices() * model.hidden_dim;
  const std::int64_t of_experts =
      mlp * model.shared_expert_ffn_dim + 2 * model.hidden_dim * model.expert_hidden_dim;
  return mlp * layer.ffn_dim + layer.side_params + (layer.has_experts ? of_experts : 0);
}

double kv_bytes(const ModelConfig& model, const AttentionPart& attention) {
  const std::int64_t of_entry =
      attention.cached_elements() * model.bytes_per_kv_element + attention.index_bytes();
  return static_cast<double>(of_entry) / static_cast<double>(attention.stride);
}

}  // namespace metronome
