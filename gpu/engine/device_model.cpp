// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/device_model.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/types.h"
#include "gpu/engine/gemm_tuning.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/engine/pass_arrays.h"
#include "gpu/engine/profile_range.h"
#include "gpu/engine/residual_stream.h"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/kv_tensors.h"

namespace metronome {
namespace {

static_assert(kGemmRows == kActivationRows);

std::size_t padded_rows(std::int64_t rows) {
  return static_cast<std::size_t>(ceil_div(rows, kGemmRows) * kGemmRows);
}

}  // namespace

MemoryDemand memory_demand(const ModelConfig& model, const PassLimits& limits) {
  const AttentionShape shape = attention_shape_of(model, false);
  return {.max_tokens = limits.max_tokens,
          .max_rows = limits.max_rows,
          .max_model_len = limits.max_model_len,
          .max_items = limits.max_items,
          .workspace_bytes = kGemmWorkspaceBytes,
          .partial_floats = can_split_decode(shape) ? decode_partial_floats(shape) : 0,
          .sample_scratch_bytes =
              sample_scratch_bytes(limits.max_rows, static_cast<std::int32_t>(model.vocab_size)),
          .prefill_part_bytes = limits.max_parts * prefill_part_floats(shape) *
                                static_cast<std::int64_t>(sizeof(float))};
}

struct DeviceModel::Pass {
  PassArrays arrays;
  LinearPass linears;
  ResidualStream residual;
  cudaStream_t stream;
};

DeviceModel::DeviceModel(const ModelSource& source, const PassLimits& limits, GemmStore& store,
                         const std::function<void()>& poll)
    : model_(source.config),
      products_(model_products(model_)),
      limits_(limits),
      weights_(load_weights(source, limits.max_model_len, poll)),
      gemm_(store, kGemmWorkspaceBytes),
      attention_(model_, limits.max_items, limits.max_parts),
      num_processors_(num_processors()) {
  const std::size_t rows = padded_rows(limits.max_tokens);
  const auto activations = [rows](std::int64_t cols) {
    return DeviceArray<__nv_bfloat16>(rows * static_cast<std::size_t>(cols));
  };
  const std::int64_t query_dim = model_.n_heads * model_.head_dim;
  residual_ = activations(model_.hidden_dim);
  normed_ = activations(model_.hidden_dim);
  if (model_.has_post_norms) update_ = activations(model_.hidden_dim);
  qkv_ = activations(products_[kQkvProduct].n);
  queries_ = activations(query_dim);
  attended_ = activations(query_dim);
  gate_up_ = activations(2 * model_.ffn_dim);
  activated_ = activations(model_.ffn_dim);
  logits_ = DeviceArray<float>(padded_rows(limits.max_rows) *
                               static_cast<std::size_t>(model_.vocab_size));
  sample_scratch_ = DeviceArray<std::byte>(static_cast<std::size_t>(
      sample_scratch_bytes(limits.max_rows, static_cast<std::int32_t>(model_.vocab_size))));
  prepare_gemms(poll);
}

void DeviceModel::prepare_gemms(const std::function<void()>& poll) {
  for (const LayerProduct& product : products_) {
    if (poll) poll();
    const bool is_head = product.has_float_output;
    gemm_.prepare(gemm_shape(product), is_head ? limits_.max_rows : limits_.max_tokens);
  }
}

LinearResources DeviceModel::linear_resources() const {
  return {.gemm = &gemm_, .gate_up = gate_up_.data(), .num_processors = num_processors_};
}

void DeviceModel::warm_up(const std::function<void()>& poll) {
  const Stream stream = make_stream();
  const DeviceLayer& layer = weights_.layers.front();
  void* hidden = model_.has_post_norms ? update_.data() : residual_.data();
  for (const std::int64_t bucket : gemm_buckets(limits_.max_tokens)) {
    if (poll) poll();
    const auto rows = static_cast<std::int32_t>(std::min<std::int64_t>(bucket, limits_.max_tokens));
    layer.qkv.warm_up(gemm_, {normed_.data(), qkv_.data(), rows}, stream.get());
    layer.output.warm_up(gemm_, {attended_.data(), hidden, rows}, stream.get());
    layer.gate_up.warm_up(gemm_, {normed_.data(), gate_up_.data(), rows}, stream.get());
    layer.down.warm_up(gemm_, {activated_.data(), hidden, rows}, stream.get());
  }
  for (const std::int64_t bucket : gemm_buckets(limits_.max_rows)) {
    const auto rows = static_cast<std::int32_t>(
        std::min<std::int64_t>({bucket, limits_.max_rows, limits_.max_tokens}));
    weights_.head.warm_up(gemm_, {normed_.data(), logits_.data(), rows}, stream.get());
  }
  check_cuda(cudaStreamSynchronize(stream.get()), "warming up");
}

void DeviceModel::warm_up_wgmma(cudaStream_t stream) {
  const DeviceLayer& layer = weights_.layers.front();
  const LinearResources resources = linear_resources();
  // One CTA uses the same kernels as a cluster.
  for (const PrefillGemmTile& tile : prefill_gemm_tiles(1)) {
    const LinearKernel kernel = {.product = {ProductKernel::Kind::PrefillGemm, tile},
                                 .fuses_activation = true};
    layer.qkv.launch(kernel, resources, {normed_.data(), qkv_.data(), 1}, stream);
    layer.gate_up.launch(kernel, resources, {normed_.data(), activated_.data(), 1}, stream);
  }
}

DeviceModel::Pass DeviceModel::begin_pass(const StepArrays& arrays, const std::byte* block,
                                          GemmMode mode, const PassKernels& kernels,
                                          cudaStream_t stream) const {
  const LinearDemand demand = {.num_tokens = arrays.num_tokens,
                               .num_rows = arrays.num_rows,
                               .has_prefill = arrays.has_prefill,
                               .mode = mode,
                               .allowed = kernels,
                               .num_processors = num_processors_};
  return {.arrays = PassArrays(arrays, block),
          .linears = {.resources = linear_resources(),
                      .kernels = choose_linear_kernels(products_, demand),
                      .num_tokens = arrays.num_tokens,
                      .stream = stream},
          .residual = {.rows = residual_.data(),
                       .spare = normed_.data(),
                       .update = update_.data(),
                       .num_tokens = arrays.num_tokens,
                       .hidden_dim = static_cast<std::int32_t>(model_.hidden_dim),
                       .eps = static_cast<float>(model_.norm_eps),
                       .unit_offset = model_.has_unit_offset_norms},
          .stream = stream};
}

void DeviceModel::forward(const StepArrays& arrays, const std::byte* block, const DeviceKvCache& kv,
                          GemmMode mode, const PassKernels& kernels, std::int32_t* sampled,
                          cudaStream_t stream) {
  METRONOME_CHECK(0 < arrays.num_tokens && arrays.num_tokens <= limits_.max_tokens &&
                      arrays.num_rows <= limits_.max_rows,
                  "a pass fits the memory for activations");
  Pass pass = begin_pass(arrays, block, mode, kernels, stream);
  embed(pass, sampled);
  for (std::int64_t i = 0; i < model_.n_layers; ++i) run_layer(pass, kv, i);
  if (arrays.num_rows == 0) return;
  project_logits(pass);
  sample(pass, sampled);
}

void DeviceModel::embed(const Pass& pass, const std::int32_t* sampled) const {
  const ProfileRange range("embed");
  // transformers rounds the factor to the type of the weights.
  const float scale =
      model_.scales_embeddings
          ? __bfloat162float(__float2bfloat16_rn(std::sqrt(static_cast<float>(model_.hidden_dim))))
          : 1.0f;
  launch_embed({.table = weights_.embedding.data(),
                .token_ids = pass.arrays.at(pass.arrays->token_ids),
                .sampled = sampled,
                .num_tokens = pass.arrays->num_tokens,
                .hidden_dim = static_cast<std::int32_t>(model_.hidden_dim),
                .vocab_size = static_cast<std::int32_t>(model_.vocab_size),
                .scale = scale,
                .out = pass.residual.rows},
               pass.stream);
}

// Adds o(attention(norm(stream))) to the stream, then down(activation(gate_up(norm(stream)))).
void DeviceModel::run_layer(Pass& pass, const DeviceKvCache& kv, std::int64_t index) const {
  const ProfileRange range("layer");
  const DeviceLayer& layer = weights_.layers[static_cast<std::size_t>(index)];

  ProfileRange stage("qkv");
  layer.qkv.multiply_normed(pass.linears, pass.residual, {layer.attention_norm.data()},
                            qkv_.data());
  place_heads(pass, kv, index);

  stage.next("attention");
  attention_.run(pass.arrays, kv, {index, layer.is_window, queries_.data(), attended_.data()},
                 pass.stream);

  stage.next("attention output");
  layer.output.add_to(pass.linears, pass.residual, attended_.data(),
                      layer.attention_post_norm.data());

  stage.next("mlp");
  layer.gate_up.multiply_normed(pass.linears, pass.residual, {layer.mlp_norm.data()},
                                activated_.data());
  layer.down.add_to(pass.linears, pass.residual, activated_.data(), layer.mlp_post_norm.data());
}

// Normalises queries and keys and applies RoPE. Keys and values go to the cache.
void DeviceModel::place_heads(const Pass& pass, const DeviceKvCache& kv, std::int64_t index) const {
  const DeviceLayer& layer = weights_.layers[static_cast<std::size_t>(index)];
  launch_heads({.qkv = qkv_.data(),
                .query_norm = layer.query_norm.data(),
                .key_norm = layer.key_norm.data(),
                .cos_sin = layer.is_window ? weights_.window_rope.data() : weights_.rope.data(),
                .positions = pass.arrays.at(pass.arrays->positions),
                .slots = pass.arrays.slots(layer.is_window),
                .queries = queries_.data(),
                .keys = kv.keys(index),
                .values = kv.values(index),
                .num_tokens = pass.arrays->num_tokens,
                .n_heads = static_cast<std::int32_t>(model_.n_heads),
                .n_kv_heads = static_cast<std::int32_t>(model_.n_kv_heads),
                .head_dim = static_cast<std::int32_t>(model_.head_dim),
                .block_size = static_cast<std::int32_t>(kv.shape().block_size),
                .eps = static_cast<float>(model_.norm_eps),
                .unit_offset = model_.has_unit_offset_norms},
               pass.stream);
}

void DeviceModel::project_logits(Pass& pass) const {
  const ProfileRange range("logits");
  const InputNorm norm = {.weight = weights_.final_norm.data(),
                          .rows = pass.arrays.at(pass.arrays->logit_tokens),
                          .num_rows = pass.arrays->num_rows};
  weights_.head.multiply_normed(pass.linears, pass.residual, norm, logits_.data());
}

void DeviceModel::sample(const Pass& pass, std::int32_t* sampled) const {
  const ProfileRange range("sample");
  launch_sample({.logits = logits_.data(),
                 .rows = pass.arrays.at<SampleRow>(pass.arrays->sample_rows),
                 .num_rows = pass.arrays->num_rows,
                 .vocab_size = static_cast<std::int32_t>(model_.vocab_size),
                 .scratch = sample_scratch_.data(),
                 .tokens = sampled},
                pass.stream);
}

}  // namespace metronome
