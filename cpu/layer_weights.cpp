#include "cpu/layer_weights.h"

#include <initializer_list>
#include <string>

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
            .down = linear(layer, {prefix + "down_proj"}, has_bias)};
  }

  LayerWeights layer(std::int64_t i) const {
    LayerWeights weights;
    weights.is_window = model_.is_window_layer(i);
    weights.is_rotated = model_.is_rotated_layer(i);
    weights.qkv = linear(i, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                         model_.has_qkv_biases);
    weights.attention_output = linear(i, {"self_attn.o_proj"}, model_.has_attention_output_bias);
    if (model_.is_moe_layer(i)) {
      weights.router = matrix(i, "mlp.gate");
      for (std::int64_t e = 0; e < model_.n_experts; ++e) {
        weights.mlps.push_back(mlp(i, "mlp.experts." + std::to_string(e) + ".", false));
      }
    } else {
      weights.mlps.push_back(mlp(i, "mlp.", model_.has_mlp_biases));
    }
    load_norms(i, weights);
    return weights;
  }

 private:
  void load_norms(std::int64_t i, LayerWeights& weights) const {
    if (model_.has_qk_norm) {
      weights.query_norm = norm(i, "self_attn.q_norm");
      weights.key_norm = norm(i, "self_attn.k_norm");
    }
    if (model_.has_pre_norms) weights.attention_norm = norm(i, "input_layernorm");
    // Without norms of outputs, this name is the norm of the MLP's input; otherwise it is that of
    // attention's output.
    if (!model_.has_post_norms) {
      weights.mlp_norm = norm(i, "post_attention_layernorm");
      return;
    }
    weights.attention_post_norm = norm(i, "post_attention_layernorm");
    if (model_.has_pre_norms) weights.mlp_norm = norm(i, "pre_feedforward_layernorm");
    weights.mlp_post_norm = norm(i, "post_feedforward_layernorm");
  }

  std::vector<float> row(const WeightSpec& spec) const {
    std::vector<float> values(static_cast<std::size_t>(spec.cols));
    source_.read(spec, 0, 1, values.data());
    return values;
  }

  const ModelConfig& model_;
  const WeightSource& source_;
  ThreadPool& pool_;
};

std::int64_t bytes_of(const MlpWeights& mlp) {
  return mlp.input.matrix.num_bytes() + mlp.down.matrix.num_bytes();
}

}  // namespace

std::int64_t ModelWeights::num_bytes() const {
  std::int64_t bytes = embedding.num_bytes() + positions.num_bytes() + head.num_bytes();
  for (const LayerWeights& layer : layers) {
    bytes += layer.qkv.matrix.num_bytes() + layer.attention_output.matrix.num_bytes() +
             layer.router.num_bytes();
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
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    if (poll) poll();
    weights.layers.push_back(loader.layer(i));
  }
  weights.final_norm = loader.norm(-1, "model.norm");
  if (!model.has_tied_embeddings) weights.head = loader.matrix(-1, "lm_head");
  return weights;
}

}  // namespace metronome
