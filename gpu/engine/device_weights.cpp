// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/device_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "core/model/rope.h"
#include "gpu/kernels/draw.h"

namespace metronome {
namespace {

// Elements read from a file and copied to the device at once.
constexpr std::int64_t kStagedElements = 1 << 22;

class Loader {
 public:
  Loader(const ModelSource& source, const std::function<void()>& poll)
      : source_(source), poll_(poll), stream_(make_stream()) {}

  // Concatenates the tensors to one matrix; empty without names.
  DeviceArray<__nv_bfloat16> load(std::int64_t layer, std::initializer_list<const char*> names) {
    std::vector<WeightSpec> specs;
    std::int64_t size = 0;
    for (const char* name : names) {
      specs.push_back(weight_spec(source_.config, layer, name));
      size += specs.back().rows * specs.back().cols;
    }
    DeviceArray<__nv_bfloat16> matrix(static_cast<std::size_t>(size));
    __nv_bfloat16* out = matrix.data();
    for (const WeightSpec& spec : specs) {
      if (poll_) poll_();
      fill(spec, out);
      out += spec.rows * spec.cols;
    }
    return matrix;
  }

  void finish() { check_cuda(cudaStreamSynchronize(stream_.get()), "drawing weights"); }

 private:
  void fill(const WeightSpec& spec, __nv_bfloat16* out) {
    if (source_.is_drawn && spec.role != WeightRole::Norm) {
      launch_draw_weights(random_weight_key(source_.seed, spec.name), 0, spec.rows * spec.cols,
                          random_weight_scale(spec.cols), out, stream_.get());
      return;
    }
    const std::int64_t rows_at_once = std::max<std::int64_t>(1, kStagedElements / spec.cols);
    for (std::int64_t row = 0; row < spec.rows; row += rows_at_once) {
      const std::int64_t end = std::min(spec.rows, row + rows_at_once);
      const auto count = static_cast<std::size_t>((end - row) * spec.cols);
      values_.resize(count);
      rounded_.resize(count);
      source_.weights->read(spec, row, end, values_.data());
      std::transform(values_.begin(), values_.end(), rounded_.begin(),
                     [](float value) { return __float2bfloat16_rn(value); });
      copy_to_device(out + row * spec.cols, rounded_.data(), count * sizeof(__nv_bfloat16));
      if (poll_) poll_();
    }
  }

  const ModelSource& source_;
  const std::function<void()>& poll_;
  Stream stream_;
  std::vector<float> values_;
  std::vector<__nv_bfloat16> rounded_;
};

using Products = std::array<LayerProduct, kNumProducts>;

DeviceLayer load_layer(Loader& loader, const ModelConfig& model, const Products& products,
                       std::int64_t i) {
  DeviceLayer layer;
  layer.is_window = model.is_window_layer(i);
  const auto linear = [&](ProductPlace place, std::initializer_list<const char*> names) {
    return Linear(products[place], loader.load(i, names));
  };
  layer.qkv = linear(kQkvProduct, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
  layer.output = linear(kOutputProduct, {"self_attn.o_proj"});
  layer.gate_up = linear(kGateUpProduct, {"mlp.gate_proj", "mlp.up_proj"});
  layer.down = linear(kDownProduct, {"mlp.down_proj"});
  layer.attention_norm = loader.load(i, {"input_layernorm"});
  if (model.has_qk_norm) {
    layer.query_norm = loader.load(i, {"self_attn.q_norm"});
    layer.key_norm = loader.load(i, {"self_attn.k_norm"});
  }
  // Llama uses this name for the norm before the MLP. Models with four norms use it after
  // attention.
  if (model.has_post_norms) {
    layer.attention_post_norm = loader.load(i, {"post_attention_layernorm"});
    layer.mlp_norm = loader.load(i, {"pre_feedforward_layernorm"});
    layer.mlp_post_norm = loader.load(i, {"post_feedforward_layernorm"});
  } else {
    layer.mlp_norm = loader.load(i, {"post_attention_layernorm"});
  }
  return layer;
}

// The angle is a float product, as in transformers. Cosine and sine are computed in double.
DeviceArray<float> load_rope(const ModelConfig& model, bool is_window, std::int64_t num_positions) {
  const std::vector<float> frequencies = rope_frequencies(model, is_window);
  const std::size_t half = frequencies.size();
  std::vector<float> table(static_cast<std::size_t>(num_positions) * 2 * half);
  for (std::int64_t position = 0; position < num_positions; ++position) {
    float* row = table.data() + static_cast<std::size_t>(position) * 2 * half;
    for (std::size_t i = 0; i < half; ++i) {
      const auto angle = static_cast<double>(static_cast<float>(position) * frequencies[i]);
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  DeviceArray<float> rope(table.size());
  rope.upload(table);
  return rope;
}

}  // namespace

DeviceWeights load_weights(const ModelSource& source, std::int64_t max_model_len,
                           const std::function<void()>& poll) {
  const ModelConfig& model = source.config;
  const Products products = model_products(model);
  Loader loader(source, poll);
  DeviceWeights weights;
  weights.embedding = loader.load(-1, {"model.embed_tokens"});
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    weights.layers.push_back(load_layer(loader, model, products, i));
  }
  weights.final_norm = loader.load(-1, {"model.norm"});
  const LayerProduct& head = products[kHeadProduct];
  weights.head = model.has_tied_embeddings ? Linear(head, weights.embedding.data())
                                           : Linear(head, loader.load(-1, {"lm_head"}));
  if (model.n_global_layers() > 0) weights.rope = load_rope(model, false, max_model_len);
  if (model.n_window_layers() > 0) weights.window_rope = load_rope(model, true, max_model_len);
  loader.finish();
  return weights;
}

}  // namespace metronome
