// SPDX-License-Identifier: Apache-2.0
#include "cpu/layer_weights.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/math.h"
#include "cpu/kernels.h"

namespace metronome {
namespace {

class WeightLoader {
 public:
  WeightLoader(const ModelConfig& model, const WeightSource& source, ThreadPool& pool)
      : model_(model), source_(source), pool_(pool) {}

  PackedMatrix matrix(std::int64_t layer, const std::string& name) const {
    return PackedMatrix(source_, {weight_spec(model_, layer, name)}, pool_);
  }

  // Some projections of the same input as one.
  LinearWeights linear(std::int64_t layer, const std::vector<std::string>& names,
                       bool has_bias) const {
    LinearWeights weights;
    std::vector<WeightSpec> specs;
    for (const std::string& name : names) {
      specs.push_back(weight_spec(model_, layer, name));
      if (!has_bias) continue;
      const std::vector<float> bias = row(bias_spec(model_, layer, name));
      weights.bias.insert(weights.bias.end(), bias.begin(), bias.end());
    }
    weights.matrix = PackedMatrix(source_, specs, pool_);
    return weights;
  }

  NormWeights norm(std::int64_t layer, const std::string& name) const {
    if (!model_.has_norm_weights) {
      return {.scale = std::vector<float>(static_cast<std::size_t>(model_.hidden_dim), 1.0f),
              .bias = {}};
    }
    NormWeights weights = {.scale = row(weight_spec(model_, layer, name)), .bias = {}};
    if (model_.has_unit_offset_norms) {
      for (float& scale : weights.scale) scale += 1.0f;
    }
    if (model_.has_norm_biases) weights.bias = row(bias_spec(model_, layer, name));
    return weights;
  }

  MlpWeights mlp(std::int64_t layer, const std::string& prefix, bool has_bias) const {
    std::vector<std::string> inputs;
    if (model_.has_gated_mlp) inputs.push_back(prefix + "gate_proj");
    inputs.push_back(prefix + "up_proj");
    return {.input = linear(layer, inputs, has_bias),
            .down = linear(layer, {prefix + "down_proj"}, has_bias),
            .xielu = {}};
  }

  LayerWeights layer(std::int64_t i) const {
    LayerWeights weights;
    weights.is_window = model_.is_window_layer(i);
    weights.is_rotated = model_.is_rotated_layer(i);
    if (model_.is_linear_layer(i)) {
      weights.linear = linear_attention(i);
    } else {
      load_attention(i, weights);
    }
    if (model_.is_moe_layer(i)) {
      load_experts(i, weights);
    } else {
      weights.mlps.push_back(mlp(i, "mlp.", model_.has_mlp_biases));
      if (model_.activation == Activation::Xielu) weights.mlps.front().xielu = xielu(i);
    }
    load_norms(i, weights);
    return weights;
  }

 private:
  void load_attention(std::int64_t i, LayerWeights& weights) const {
    weights.attention_output = linear(i, {"self_attn.o_proj"}, model_.has_attention_output_bias);
    if (!model_.latent_attention.is_empty()) {
      weights.latent = load_latent_weights(model_, source_, i, pool_);
      return;
    }
    std::vector<std::string> inputs = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    if (model_.has_gated_attention) inputs.push_back("self_attn.gate_proj");
    weights.qkv = linear(i, inputs, model_.has_qkv_biases);
    if (model_.has_attention_sinks) weights.sinks = row(plain_spec(model_, i, "self_attn.sinks"));
  }

  void load_experts(std::int64_t i, LayerWeights& weights) const {
    weights.router.matrix = matrix(i, "mlp.gate");
    if (model_.has_router_biases) weights.router.bias = row(bias_spec(model_, i, "mlp.gate"));
    if (model_.has_choice_bias) {
      weights.router.choice_bias = row(plain_spec(model_, i, "mlp.gate.e_score_correction_bias"));
    }
    for (std::int64_t e = 0; e < model_.n_experts; ++e) {
      const std::string name = fmt::format("mlp.experts.{}.", e);
      weights.mlps.push_back(mlp(i, name, model_.has_expert_biases));
    }
    if (model_.shared_expert_ffn_dim == 0) return;
    weights.shared_expert = mlp(i, "mlp.shared_expert.", false);
    if (model_.has_shared_expert_gate) {
      weights.shared_expert_gate = matrix(i, "mlp.shared_expert_gate");
    }
  }

  // xIELU's coefficients are the softplus of the numbers in a file.
  Xielu xielu(std::int64_t i) const {
    const auto softplus = [&](const char* name) {
      const auto x = static_cast<double>(row(plain_spec(model_, i, name)).front());
      return std::max(x, 0.0) + log_of(1 + exp_of(-std::abs(x)));
    };
    return {
        .positive = static_cast<float>(softplus("mlp.act_fn.alpha_p")),
        .negative = static_cast<float>(softplus("mlp.act_fn.alpha_n") + double{Xielu::kLinear})};
  }

  LinearAttentionWeights linear_attention(std::int64_t i) const {
    const LinearAttention& shape = model_.linear_attention;
    const std::string prefix = "linear_attn.";
    LinearAttentionWeights weights;
    weights.input = linear(i,
                           {prefix + "in_proj_q", prefix + "in_proj_k", prefix + "in_proj_v",
                            prefix + "in_proj_z", prefix + "in_proj_b", prefix + "in_proj_a"},
                           false);
    weights.output = linear(i, {prefix + "out_proj"}, false);
    const WeightSpec taps = weight_spec(model_, i, prefix + "conv1d");
    std::vector<float> by_channel(static_cast<std::size_t>(taps.rows * taps.cols));
    source_.read(taps, 0, taps.rows, by_channel.data());
    for (std::int64_t tap = 0; tap < taps.cols; ++tap) {
      for (std::int64_t channel = 0; channel < taps.rows; ++channel) {
        weights.taps.push_back(by_channel[static_cast<std::size_t>(channel * taps.cols + tap)]);
      }
    }
    for (const float rate : row(plain_spec(model_, i, prefix + "A_log"))) {
      weights.decay_rates.push_back(exp_of(static_cast<double>(rate)));
    }
    weights.decay_biases = row(plain_spec(model_, i, prefix + "dt_bias"));
    weights.norm = row(weight_spec(model_, i, prefix + "norm"));
    METRONOME_CHECK(weights.decay_rates.size() == static_cast<std::size_t>(shape.n_value_heads),
                    "every value head has a decay");
    return weights;
  }

  void load_norms(std::int64_t i, LayerWeights& weights) const {
    if (model_.has_qk_norm && !model_.is_linear_layer(i)) {
      weights.query_norm = norm(i, "self_attn.q_norm");
      weights.key_norm = norm(i, "self_attn.k_norm");
    }
    if (model_.has_pre_norms) weights.attention_norm = norm(i, "input_layernorm");
    // Without norms of outputs, this name is the norm of the MLP's input; otherwise it is that of
    // attention's output.
    if (!model_.has_post_norms) {
      if (model_.has_mlp_norm()) weights.mlp_norm = norm(i, "post_attention_layernorm");
      return;
    }
    weights.attention_post_norm = norm(i, "post_attention_layernorm");
    if (model_.has_pre_norms) weights.mlp_norm = norm(i, "pre_feedforward_layernorm");
    weights.mlp_post_norm = norm(i, "post_feedforward_layernorm");
  }

  std::vector<float> row(const WeightSpec& spec) const { return read_row(source_, spec); }

  const ModelConfig& model_;
  const WeightSource& source_;
  ThreadPool& pool_;
};

std::int64_t bytes_of(const MlpWeights& mlp) {
  return mlp.input.matrix.num_bytes() + mlp.down.matrix.num_bytes();
}

}  // namespace

void LinearWeights::multiply(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                             std::vector<float>& out, ThreadPool& pool) const {
  const std::int64_t num_outputs = matrix.num_outputs();
  out.resize(static_cast<std::size_t>(num_rows * num_outputs));
  matrix.multiply(x, x_stride, num_rows, out.data(), num_outputs, pool);
  if (bias.empty()) return;
  const Kernels& set = kernels();
  pool.for_rows(num_rows, [&](std::int64_t row) {
    set.add(out.data() + row * num_outputs, bias.data(), num_outputs);
  });
}

std::vector<float> read_row(const WeightSource& source, const WeightSpec& spec) {
  std::vector<float> values(static_cast<std::size_t>(spec.cols));
  source.read(spec, 0, 1, values.data());
  return values;
}

std::int64_t ModelWeights::num_bytes() const {
  std::int64_t bytes = embedding.num_bytes() + positions.num_bytes() + head.num_bytes();
  for (const LayerWeights& layer : layers) {
    bytes += layer.qkv.matrix.num_bytes() + layer.attention_output.matrix.num_bytes() +
             layer.latent.num_bytes() + layer.router.matrix.num_bytes() +
             layer.linear.input.matrix.num_bytes() + layer.linear.output.matrix.num_bytes() +
             bytes_of(layer.shared_expert) + layer.shared_expert_gate.num_bytes();
    for (const MlpWeights& mlp : layer.mlps) bytes += bytes_of(mlp);
  }
  return bytes;
}

ModelWeights load_model_weights(const ModelConfig& model, const WeightSource& source,
                                ThreadPool& pool, const std::function<void()>& poll) {
  const WeightLoader loader(model, source, pool);
  ModelWeights weights;
  weights.embedding = loader.matrix(-1, "model.embed_tokens");
  if (model.has_learned_positions) weights.positions = loader.matrix(-1, "model.embed_positions");
  std::int64_t num_attending = 0;
  std::int64_t num_with_states = 0;
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    if (poll) poll();
    LayerWeights layer = loader.layer(i);
    layer.number = (layer.linear.is_empty() ? num_attending : num_with_states)++;
    weights.layers.push_back(std::move(layer));
  }
  weights.final_norm = loader.norm(-1, "model.norm");
  if (!model.has_tied_embeddings) weights.head = loader.matrix(-1, "lm_head");
  if (model.has_head_bias) weights.head_bias = read_row(source, bias_spec(model, -1, "lm_head"));
  return weights;
}

}  // namespace metronome
