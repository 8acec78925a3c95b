// SPDX-License-Identifier: Apache-2.0
// The tensors of a model.
#include "models/weights/model_weights.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "core/base/error.h"
#include "models/weights/vision_weights.h"

namespace metronome {
namespace {

WeightSpec linear(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return {name + ".weight", rows, cols, WeightRole::Linear};
}

WeightSpec norm(const std::string& name, std::int64_t cols) {
  return {name + ".weight", 1, cols, WeightRole::Norm};
}

WeightSpec bias(const std::string& name, std::int64_t cols) {
  return {name + ".bias", 1, cols, WeightRole::Bias};
}

std::string layer_prefix(std::int64_t layer) { return fmt::format("model.layers.{}.", layer); }

// Collects the tensors of a part of the model.
class SpecList {
 public:
  explicit SpecList(const ModelConfig& model) : model_(model) {}

  void add_norm(const std::string& name, std::int64_t cols) {
    if (!model_.has_norm_weights) return;
    specs_.push_back(norm(name, cols));
    if (model_.has_norm_biases) specs_.push_back(bias(name, cols));
  }
  void add_linear(const std::string& name, std::int64_t rows, std::int64_t cols, bool has_bias) {
    specs_.push_back(linear(name, rows, cols));
    if (has_bias) specs_.push_back(bias(name, rows));
  }
  void add_row(const std::string& name, WeightRole role, std::int64_t cols) {
    specs_.push_back({name, 1, cols, role});
  }
  void add_convolution(const std::string& name, std::int64_t rows, std::int64_t cols) {
    specs_.push_back({name + ".weight", rows, cols, WeightRole::Convolution});
  }
  void add_embedding(const std::string& name, std::int64_t rows) {
    specs_.push_back({name + ".weight", rows, model_.hidden_dim, WeightRole::Embedding});
  }
  void add_mlp(const std::string& prefix, std::int64_t width, bool has_bias) {
    const std::int64_t hidden = model_.hidden_dim;
    if (model_.has_gated_mlp) add_linear(prefix + "gate_proj", width, hidden, has_bias);
    add_linear(prefix + "up_proj", width, hidden, has_bias);
    add_linear(prefix + "down_proj", hidden, width, has_bias);
  }

  std::vector<WeightSpec> take() { return std::move(specs_); }

 private:
  const ModelConfig& model_;
  std::vector<WeightSpec> specs_;
};

// The tensors before the layers.
std::vector<WeightSpec> input_specs(const ModelConfig& model) {
  SpecList specs(model);
  specs.add_embedding("model.embed_tokens", model.vocab_size);
  if (model.has_learned_positions) {
    specs.add_embedding("model.embed_positions", model.max_position_embeddings);
  }
  return specs.take();
}

void add_latent_attention(const ModelConfig& model, const std::string& attention, SpecList& specs) {
  const LatentAttention& latent = model.latent_attention;
  const std::int64_t hidden = model.hidden_dim;
  if (latent.q_rank > 0) {
    specs.add_linear(attention + "q_a_proj", latent.q_rank, hidden, false);
    specs.add_norm(attention + "q_a_layernorm", latent.q_rank);
    specs.add_linear(attention + "q_b_proj", model.query_dim(), latent.q_rank, false);
  } else {
    specs.add_linear(attention + "q_proj", model.query_dim(), hidden, false);
  }
  specs.add_linear(attention + "kv_a_proj_with_mqa", latent.cached_dim(), hidden, false);
  specs.add_norm(attention + "kv_a_layernorm", latent.kv_rank);
  specs.add_linear(attention + "kv_b_proj", model.n_heads * (latent.nope_dim + latent.value_dim),
                   latent.kv_rank, false);
  specs.add_linear(attention + "o_proj", hidden, model.n_heads * latent.value_dim, false);
}

void add_attention(const ModelConfig& model, const std::string& attention, SpecList& specs) {
  if (!model.latent_attention.is_empty()) return add_latent_attention(model, attention, specs);
  const std::int64_t hidden = model.hidden_dim;
  specs.add_linear(attention + "q_proj", model.query_dim(), hidden, model.has_qkv_biases);
  specs.add_linear(attention + "k_proj", model.kv_dim(), hidden, model.has_qkv_biases);
  specs.add_linear(attention + "v_proj", model.kv_dim(), hidden, model.has_qkv_biases);
  if (model.has_gated_attention) {
    specs.add_linear(attention + "gate_proj", model.query_dim(), hidden, model.has_qkv_biases);
  }
  if (model.has_qk_norm) {
    const bool is_whole = model.has_whole_qk_norm || model.has_qk_norm_per_head;
    specs.add_norm(attention + "q_norm", is_whole ? model.query_dim() : model.head_dim);
    specs.add_norm(attention + "k_norm", is_whole ? model.kv_dim() : model.head_dim);
  }
  specs.add_linear(attention + "o_proj", hidden, model.query_dim(),
                   model.has_attention_output_bias);
  if (model.has_attention_sinks) {
    specs.add_row(attention + "sinks", WeightRole::Bias, model.n_heads);
  }
}

void add_experts(const ModelConfig& model, const std::string& mlp, SpecList& specs) {
  specs.add_linear(mlp + "gate", model.n_experts, model.hidden_dim, model.has_router_biases);
  if (model.has_choice_bias) {
    specs.add_row(mlp + "gate.e_score_correction_bias", WeightRole::Bias, model.n_experts);
  }
  for (std::int64_t i = 0; i < model.n_experts; ++i) {
    specs.add_mlp(fmt::format("{}experts.{}.", mlp, i), model.expert_ffn_dim,
                  model.has_expert_biases);
  }
  if (model.shared_expert_ffn_dim == 0) return;
  specs.add_mlp(mlp + "shared_expert.", model.shared_expert_ffn_dim, false);
  if (model.has_shared_expert_gate) {
    specs.add_linear(mlp + "shared_expert_gate", 1, model.hidden_dim, false);
  }
}

void add_linear_attention(const ModelConfig& model, const std::string& attention, SpecList& specs) {
  const LinearAttention& linear = model.linear_attention;
  const std::int64_t hidden = model.hidden_dim;
  specs.add_linear(attention + "in_proj_q", linear.key_dim(), hidden, false);
  specs.add_linear(attention + "in_proj_k", linear.key_dim(), hidden, false);
  specs.add_linear(attention + "in_proj_v", linear.value_dim(), hidden, false);
  specs.add_linear(attention + "in_proj_z", linear.value_dim(), hidden, false);
  specs.add_linear(attention + "in_proj_b", linear.n_value_heads, hidden, false);
  specs.add_linear(attention + "in_proj_a", linear.n_value_heads, hidden, false);
  specs.add_convolution(attention + "conv1d", linear.conv_channels(), linear.conv_width);
  specs.add_row(attention + "A_log", WeightRole::Bias, linear.n_value_heads);
  specs.add_row(attention + "dt_bias", WeightRole::Bias, linear.n_value_heads);
  specs.add_row(attention + "norm.weight", WeightRole::GatedNorm, linear.value_head_dim);
  specs.add_linear(attention + "out_proj", hidden, linear.value_dim(), false);
}

std::vector<WeightSpec> layer_specs(const ModelConfig& model, std::int64_t layer) {
  const std::string prefix = layer_prefix(layer);
  const std::int64_t hidden = model.hidden_dim;
  SpecList specs(model);
  if (model.has_pre_norms) specs.add_norm(prefix + "input_layernorm", hidden);
  if (model.is_linear_layer(layer)) {
    add_linear_attention(model, prefix + "linear_attn.", specs);
  } else {
    add_attention(model, prefix + "self_attn.", specs);
  }
  if (model.has_mlp_norm()) specs.add_norm(prefix + "post_attention_layernorm", hidden);
  if (model.has_pre_norms && model.has_post_norms) {
    specs.add_norm(prefix + "pre_feedforward_layernorm", hidden);
  }
  if (model.is_moe_layer(layer)) {
    add_experts(model, prefix + "mlp.", specs);
  } else {
    specs.add_mlp(prefix + "mlp.", model.ffn_dim, model.has_mlp_biases);
    if (model.activation == Activation::Xielu) {
      specs.add_row(prefix + "mlp.act_fn.alpha_p", WeightRole::Bias, 1);
      specs.add_row(prefix + "mlp.act_fn.alpha_n", WeightRole::Bias, 1);
    }
  }
  if (model.has_post_norms) specs.add_norm(prefix + "post_feedforward_layernorm", hidden);
  return specs.take();
}

// The tensors after the layers.
std::vector<WeightSpec> output_specs(const ModelConfig& model) {
  SpecList specs(model);
  specs.add_norm("model.norm", model.hidden_dim);
  if (!model.has_tied_embeddings) {
    specs.add_linear("lm_head", model.vocab_size, model.hidden_dim, false);
  }
  if (model.has_head_bias) specs.add_row("lm_head.bias", WeightRole::Bias, model.vocab_size);
  return specs.take();
}

// One tensor by its whole name.
WeightSpec find_spec(const ModelConfig& model, std::int64_t layer, const std::string& name) {
  METRONOME_CHECK(-1 <= layer && layer < model.n_layers, "a layer of the model");
  std::vector<WeightSpec> specs = layer < 0 ? input_specs(model) : layer_specs(model, layer);
  if (layer < 0) {
    for (WeightSpec& spec : output_specs(model)) specs.push_back(std::move(spec));
  }
  const std::string wanted = layer < 0 ? name : layer_prefix(layer) + name;
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const WeightSpec& spec) { return spec.name == wanted; });
  METRONOME_CHECK(found != specs.end(), "no tensor " + wanted + " in this model");
  return *found;
}

}  // namespace

void for_each_weight(const ModelConfig& model,
                     const std::function<void(const WeightSpec& spec)>& visit) {
  const auto visit_all = [&visit](const std::vector<WeightSpec>& specs) {
    for (const WeightSpec& spec : specs) visit(spec);
  };
  visit_all(input_specs(model));
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    visit_all(layer_specs(model, layer));
  }
  visit_all(output_specs(model));
  visit_all(vision_weight_specs(model.vision));
}

std::vector<WeightSpec> weight_specs(const ModelConfig& model) {
  std::vector<WeightSpec> specs;
  for_each_weight(model, [&specs](const WeightSpec& spec) { specs.push_back(spec); });
  return specs;
}

WeightSpec weight_spec(const ModelConfig& model, std::int64_t layer, const std::string& name) {
  return find_spec(model, layer, name + ".weight");
}

WeightSpec bias_spec(const ModelConfig& model, std::int64_t layer, const std::string& name) {
  return find_spec(model, layer, name + ".bias");
}

WeightSpec plain_spec(const ModelConfig& model, std::int64_t layer, const std::string& name) {
  return find_spec(model, layer, name);
}

void WeightSource::read_blocks(const WeightSpec& spec, std::int64_t, std::int64_t,
                               std::byte*) const {
  METRONOME_CHECK(false, "no blocks of tensor " + spec.name);
}

}  // namespace metronome
