#include "gpu/device_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/model/attention_mask.h"
#include "gpu/gemm_tuning.h"
#include "gpu/gpu_info.h"
#include "gpu/profile_range.h"

namespace metronome {
namespace {

static_assert(kGemmRows == kActivationRows);

std::size_t padded_rows(std::int64_t rows) {
  return static_cast<std::size_t>(ceil_div(rows, kGemmRows) * kGemmRows);
}

}  // namespace

AttentionShape attention_shape_of(const ModelConfig& model, bool is_window) {
  const double scalar = model.query_pre_attn_scalar > 0 ? model.query_pre_attn_scalar
                                                        : static_cast<double>(model.head_dim);
  return {.n_heads = static_cast<std::int32_t>(model.n_heads),
          .n_kv_heads = static_cast<std::int32_t>(model.n_kv_heads),
          .head_dim = static_cast<std::int32_t>(model.head_dim),
          .window = is_window ? static_cast<std::int32_t>(model.sliding_window) : kNoWindow,
          .scale = static_cast<float>(1.0 / std::sqrt(scalar))};
}

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
  const StepArrays& arrays;
  const std::byte* block;
  const DeviceKvCache& kv;
  GemmMode mode;
  bool fuses_products;  // one kernel each, where decode_gemm_takes() them
  std::map<GemmShape, PrefillGemmTile> tiles = {};  // of launch_prefill_gemm; empty where not used
  std::int32_t* sampled;
  cudaStream_t stream;
  __nv_bfloat16* residual;
  // With fuses_norms: where the next update leaves the residual stream. The two take turns, as
  // every block of a product reads one while one of them writes the other.
  __nv_bfloat16* next_residual;
  bool fuses_norms = false;

  template <class T>
  const T* at(const ArraySpan& span) const {
    return reinterpret_cast<const T*>(block + span.offset);
  }
};

// First the residual stream gets norm(update, post_weight), where there is one; then it is
// normalised by `weight`, where there is one.
struct DeviceModel::InputNorm {
  const __nv_bfloat16* post_weight = nullptr;
  const __nv_bfloat16* weight = nullptr;
};

DeviceModel::DeviceModel(const ModelSource& source, const PassLimits& limits, GemmStore& store,
                         const std::function<void()>& poll)
    : model_(source.config),
      products_(layer_products(model_)),
      limits_(limits),
      weights_(load_weights(source, limits.max_model_len, poll)),
      gemm_(store, kGemmWorkspaceBytes) {
  const std::size_t rows = padded_rows(limits.max_tokens);
  const auto activations = [rows](std::int64_t cols) {
    return DeviceArray<__nv_bfloat16>(rows * static_cast<std::size_t>(cols));
  };
  const std::int64_t query_dim = model_.n_heads * model_.head_dim;
  residual_ = activations(model_.hidden_dim);
  normed_ = activations(model_.hidden_dim);
  qkv_ = activations(qkv_shape().n);
  queries_ = activations(query_dim);
  attended_ = activations(query_dim);
  gate_up_ = activations(2 * model_.ffn_dim);
  activated_ = activations(model_.ffn_dim);
  if (model_.has_post_norms) update_ = activations(model_.hidden_dim);
  logits_ = DeviceArray<float>(padded_rows(limits.max_rows) *
                               static_cast<std::size_t>(model_.vocab_size));
  const MemoryDemand demand = memory_demand(model_, limits);
  partials_ = DeviceArray<float>(static_cast<std::size_t>(limits.max_items) *
                                 static_cast<std::size_t>(demand.partial_floats));
  parts_ = DeviceArray<float>(static_cast<std::size_t>(demand.prefill_part_bytes) / sizeof(float));
  sample_scratch_ = DeviceArray<std::byte>(static_cast<std::size_t>(demand.sample_scratch_bytes));
  const AttentionShape shape = attention_shape_of(model_, false);
  if (can_split_decode(shape)) decode_ctas_ = decode_attention_ctas(shape);
  num_processors_ = num_processors();
  prepare_gemms(poll);
}

GemmShape DeviceModel::qkv_shape() const { return gemm_shape(products_[kQkvProduct]); }
GemmShape DeviceModel::output_shape() const { return gemm_shape(products_[kOutputProduct]); }
GemmShape DeviceModel::gate_up_shape() const { return gemm_shape(products_[kGateUpProduct]); }
GemmShape DeviceModel::down_shape() const { return gemm_shape(products_[kDownProduct]); }
GemmShape DeviceModel::head_shape() const {
  return {.n = model_.vocab_size, .k = model_.hidden_dim, .has_float_output = true};
}

void DeviceModel::prepare_gemms(const std::function<void()>& poll) {
  for (const LayerProduct& product : products_) {
    if (poll) poll();
    gemm_.prepare(gemm_shape(product), limits_.max_tokens);
  }
  gemm_.prepare(head_shape(), limits_.max_rows);
}

void DeviceModel::warm_up(const std::function<void()>& poll) {
  const Stream stream = make_stream();
  const DeviceLayer& layer = weights_.layers.front();
  const bool is_invariant_too = invariant_fault().empty();
  const auto run = [&](const GemmShape& shape, std::int64_t rows, const __nv_bfloat16* w,
                       const DeviceArray<__nv_bfloat16>& x, void* y) {
    gemm_.run(shape, GemmMode::Fastest, rows, w, x.data(), y, stream.get());
    if (!is_invariant_too) return;
    gemm_.run(shape, GemmMode::Invariant, rows, w, x.data(), y, stream.get());
  };
  __nv_bfloat16* hidden = model_.has_post_norms ? update_.data() : residual_.data();
  for (const std::int64_t bucket : gemm_buckets(limits_.max_tokens)) {
    if (poll) poll();
    const std::int64_t rows = std::min<std::int64_t>(bucket, limits_.max_tokens);
    run(qkv_shape(), rows, layer.qkv.data(), normed_, qkv_.data());
    run(output_shape(), rows, layer.output.data(), attended_, hidden);
    run(gate_up_shape(), rows, layer.gate_up.data(), normed_, gate_up_.data());
    run(down_shape(), rows, layer.down.data(), activated_, hidden);
  }
  for (const std::int64_t bucket : gemm_buckets(limits_.max_rows)) {
    const std::int64_t rows =
        std::min<std::int64_t>({bucket, limits_.max_rows, limits_.max_tokens});
    run(head_shape(), rows, weights_.head(), normed_, logits_.data());
  }
  check_cuda(cudaStreamSynchronize(stream.get()), "warming up");
}

void DeviceModel::warm_up_wgmma(cudaStream_t stream) {
  const DeviceLayer& layer = weights_.layers.front();
  // The kernels of a cluster are those of one CTA.
  for (const PrefillGemmTile& tile : prefill_gemm_tiles(1)) {
    launch_prefill_gemm(wgmma_args(qkv_shape(), tile, GemmEpilogue::Store, layer.qkv,
                                   normed_.data(), qkv_.data(), 1),
                        stream);
    launch_prefill_gemm(wgmma_args(gate_up_shape(), tile, GemmEpilogue::Silu, layer.gate_up,
                                   normed_.data(), activated_.data(), 1),
                        stream);
  }
}

void DeviceModel::forward(const StepArrays& arrays, const std::byte* block, const DeviceKvCache& kv,
                          GemmMode mode, const PassKernels& kernels, std::int32_t* sampled,
                          cudaStream_t stream) {
  METRONOME_CHECK(0 < arrays.num_tokens && arrays.num_tokens <= limits_.max_tokens &&
                      arrays.num_rows <= limits_.max_rows,
                  "a pass fits the memory for activations");
  const bool is_fused = kernels.fuses_decodes && mode == GemmMode::Fastest && !arrays.has_prefill;
  // Normalised rows are not written to memory where norms are fused, so their place is free.
  Pass pass = {.arrays = arrays,
               .block = block,
               .kv = kv,
               .mode = mode,
               .fuses_products = is_fused,
               .sampled = sampled,
               .stream = stream,
               .residual = residual_.data(),
               .next_residual = normed_.data()};
  pass.fuses_norms = is_fused && can_fuse_norms(pass);
  if (kernels.multiplies_by_wgmma && (arrays.has_prefill || mode == GemmMode::Invariant)) {
    for (const LayerProduct& product : products_) {
      pass.tiles[gemm_shape(product)] = choose_prefill_gemm_tile({.num_tokens = arrays.num_tokens,
                                                                  .n = product.n,
                                                                  .k = product.k,
                                                                  .has_gates = product.has_gates},
                                                                 num_processors_);
    }
  }
  embed(pass);
  for (std::int64_t layer = 0; layer < model_.n_layers; ++layer) {
    const ProfileRange range("layer");
    run_attention(pass, layer);
    run_mlp(pass, layer);
  }
  if (arrays.num_rows == 0) return;
  project_logits(pass);
  sample(pass);
}

void DeviceModel::embed(const Pass& pass) {
  const ProfileRange range("embed");
  // transformers keeps the factor in the type of the weights.
  const float scale =
      model_.scales_embeddings
          ? __bfloat162float(__float2bfloat16_rn(std::sqrt(static_cast<float>(model_.hidden_dim))))
          : 1.0f;
  launch_embed({.table = weights_.embedding.data(),
                .token_ids = pass.at<std::int32_t>(pass.arrays.token_ids),
                .sampled = pass.sampled,
                .num_tokens = pass.arrays.num_tokens,
                .hidden_dim = static_cast<std::int32_t>(model_.hidden_dim),
                .vocab_size = static_cast<std::int32_t>(model_.vocab_size),
                .scale = scale,
                .out = pass.residual},
               pass.stream);
}

void DeviceModel::normalise(const Pass& pass, const InputNorm& norm) {
  launch_norm({.update = norm.post_weight != nullptr ? update_.data() : nullptr,
               .post_weight = norm.post_weight,
               .residual = pass.residual,
               .weight = norm.weight,
               .out = normed_.data(),
               .num_rows = pass.arrays.num_tokens,
               .hidden_dim = static_cast<std::int32_t>(model_.hidden_dim),
               .eps = static_cast<float>(model_.norm_eps),
               .unit_offset = model_.has_unit_offset_norms},
              pass.stream);
}

void DeviceModel::multiply(const Pass& pass, const GemmShape& shape,
                           const DeviceArray<__nv_bfloat16>& weights, const __nv_bfloat16* x,
                           __nv_bfloat16* y) const {
  if (pass.fuses_products) {
    const DecodeGemmArgs args = fused_args(pass, shape, weights.data(), x, y);
    if (decode_gemm_takes(args)) return launch_decode_gemm(args, pass.stream);
  }
  if (!pass.tiles.empty()) {
    const auto epilogue = shape.adds_output ? GemmEpilogue::Add : GemmEpilogue::Store;
    return launch_prefill_gemm(
        wgmma_args(shape, pass.tiles.at(shape), epilogue, weights, x, y, pass.arrays.num_tokens),
        pass.stream);
  }
  gemm_.run(shape, pass.mode, pass.arrays.num_tokens, weights.data(), x, y, pass.stream);
}

PrefillGemmArgs DeviceModel::wgmma_args(const GemmShape& shape, const PrefillGemmTile& tile,
                                        GemmEpilogue epilogue,
                                        const DeviceArray<__nv_bfloat16>& weights,
                                        const __nv_bfloat16* x, __nv_bfloat16* y,
                                        std::int32_t num_tokens) const {
  return {.w = weights.data(),
          .x = x,
          .epilogue = epilogue,
          .y = y,
          .num_tokens = num_tokens,
          .n = static_cast<std::int32_t>(has_gates(epilogue) ? shape.n / 2 : shape.n),
          .k = static_cast<std::int32_t>(shape.k),
          .tile = tile,
          .num_ctas = num_processors_};
}

DecodeGemmArgs DeviceModel::fused_args(const Pass& pass, const GemmShape& shape,
                                       const __nv_bfloat16* weights, const __nv_bfloat16* x,
                                       void* y) const {
  GemmEpilogue epilogue = GemmEpilogue::Store;
  if (shape.adds_output) epilogue = GemmEpilogue::Add;
  if (shape.has_float_output) epilogue = GemmEpilogue::StoreFloat;
  return {.w = weights,
          .x = x,
          .eps = static_cast<float>(model_.norm_eps),
          .unit_offset = model_.has_unit_offset_norms,
          .epilogue = epilogue,
          .y = y,
          .num_tokens = pass.arrays.num_tokens,
          .n = static_cast<std::int32_t>(shape.n),
          .k = static_cast<std::int32_t>(shape.k),
          .num_ctas = num_processors_};
}

bool DeviceModel::can_fuse_norms(const Pass& pass) const {
  DecodeGemmArgs args = fused_args(pass, qkv_shape(), nullptr, pass.residual, nullptr);
  args.norm_weight = weights_.final_norm.data();
  // Also in the first layer, which has no update yet.
  if (model_.has_post_norms) args.update = update_.data();
  return pass.arrays.num_rows <= pass.arrays.num_tokens && decode_gemm_takes(args);
}

void DeviceModel::multiply_normed(Pass& pass, const InputNorm& norm, DecodeGemmArgs args) const {
  args.norm_weight = norm.weight;
  if (norm.post_weight != nullptr) {
    args.update = update_.data();
    args.post_weight = norm.post_weight;
    args.updated = pass.next_residual;
  }
  launch_decode_gemm(args, pass.stream);
  if (norm.post_weight != nullptr) std::swap(pass.residual, pass.next_residual);
}

// The MLP of the layer before is not in the residual stream yet where there are post norms.
DeviceModel::InputNorm DeviceModel::norm_before(std::int64_t i) const {
  const DeviceLayer* before = i > 0 ? &weights_.layers[static_cast<std::size_t>(i) - 1] : nullptr;
  const bool has_update = model_.has_post_norms && before != nullptr;
  const bool is_head = i == model_.n_layers;
  return {.post_weight = has_update ? before->mlp_post_norm.data() : nullptr,
          .weight = is_head ? weights_.final_norm.data()
                            : weights_.layers[static_cast<std::size_t>(i)].attention_norm.data()};
}

void DeviceModel::run_attention(Pass& pass, std::int64_t i) {
  const DeviceLayer& layer = weights_.layers[static_cast<std::size_t>(i)];
  project_heads(pass, i);
  attend(pass, i);
  const ProfileRange range("attention output");
  multiply(pass, output_shape(), layer.output, attended_.data(),
           model_.has_post_norms ? update_.data() : pass.residual);
}

void DeviceModel::project_heads(Pass& pass, std::int64_t i) {
  const ProfileRange range("qkv");
  const DeviceLayer& layer = weights_.layers[static_cast<std::size_t>(i)];
  const StepArrays& arrays = pass.arrays;
  if (pass.fuses_norms) {
    multiply_normed(pass, norm_before(i),
                    fused_args(pass, qkv_shape(), layer.qkv.data(), pass.residual, qkv_.data()));
  } else {
    normalise(pass, norm_before(i));
    multiply(pass, qkv_shape(), layer.qkv, normed_.data(), qkv_.data());
  }
  const bool has_own_blocks = layer.is_window && arrays.window_slots.count > 0;
  launch_heads({.qkv = qkv_.data(),
                .query_norm = layer.query_norm.data(),
                .key_norm = layer.key_norm.data(),
                .cos_sin = layer.is_window ? weights_.window_rope.data() : weights_.rope.data(),
                .positions = pass.at<std::int32_t>(arrays.positions),
                .slots = pass.at<std::int32_t>(has_own_blocks ? arrays.window_slots : arrays.slots),
                .queries = queries_.data(),
                .keys = pass.kv.keys(i),
                .values = pass.kv.values(i),
                .num_tokens = arrays.num_tokens,
                .n_heads = static_cast<std::int32_t>(model_.n_heads),
                .n_kv_heads = static_cast<std::int32_t>(model_.n_kv_heads),
                .head_dim = static_cast<std::int32_t>(model_.head_dim),
                .block_size = static_cast<std::int32_t>(pass.kv.shape().block_size),
                .eps = static_cast<float>(model_.norm_eps),
                .unit_offset = model_.has_unit_offset_norms},
               pass.stream);
}

void DeviceModel::attend(const Pass& pass, std::int64_t i) {
  const ProfileRange range("attention");
  const bool is_window = weights_.layers[static_cast<std::size_t>(i)].is_window;
  const StepArrays& arrays = pass.arrays;
  const bool has_own_blocks = is_window && arrays.window_slots.count > 0;
  const PagedKv kv = {
      .keys = pass.kv.keys(i),
      .values = pass.kv.values(i),
      .block_tables =
          pass.at<std::int32_t>(has_own_blocks ? arrays.window_block_tables : arrays.block_tables),
      .table_start =
          pass.at<std::int32_t>(has_own_blocks ? arrays.window_table_start : arrays.table_start),
      .block_size = static_cast<std::int32_t>(pass.kv.shape().block_size)};
  const AttentionShape shape = attention_shape_of(model_, is_window);
  if (arrays.tiles.count > 0) {
    PrefillAttentionArgs args = {.shape = shape,
                                 .kv = kv,
                                 .queries = queries_.data(),
                                 .query_start = pass.at<std::int32_t>(arrays.query_start),
                                 .context_lens = pass.at<std::int32_t>(arrays.context_lens),
                                 .tiles = pass.at<PrefillTile>(arrays.tiles),
                                 .num_tiles = static_cast<std::int32_t>(arrays.tiles.count),
                                 .out = attended_.data()};
    const KvTensors* const tensors = pass.kv.tensors(i);
    if (tensors != nullptr) {
      METRONOME_CHECK(arrays.tiles.count <= static_cast<std::size_t>(limits_.max_parts),
                      "a part for every tile");
      PrefillParts parts = {.parts = parts_.data(), .span_size = arrays.span_size};
      if (!is_window && arrays.span_tiles.count > 0) {
        args.tiles = pass.at<PrefillTile>(arrays.span_tiles);
        args.num_tiles = static_cast<std::int32_t>(arrays.span_tiles.count);
        parts.merges = pass.at<PrefillMerge>(arrays.merges);
        parts.num_merges = static_cast<std::int32_t>(arrays.merges.count);
      }
      launch_wgmma_attention(args, parts, *tensors, pass.stream);
    } else {
      launch_prefill_attention(args, pass.stream);
    }
  }
  if (arrays.num_decodes == 0) return;
  launch_decode_attention(
      {.shape = shape,
       .kv = kv,
       .queries = queries_.data(),
       .query_start = pass.at<std::int32_t>(arrays.query_start),
       .context_lens = pass.at<std::int32_t>(arrays.context_lens),
       .sequences = pass.at<std::int32_t>(arrays.decodes),
       .item_start =
           pass.at<std::int32_t>(is_window ? arrays.window_item_start : arrays.item_start),
       .item_decode =
           pass.at<std::int32_t>(is_window ? arrays.window_item_decode : arrays.item_decode),
       .num_decodes = arrays.num_decodes,
       .split_size = arrays.split_size,
       .num_ctas = decode_ctas_,
       .partials = partials_.data(),
       .out = attended_.data()},
      pass.stream);
}

void DeviceModel::run_mlp(Pass& pass, std::int64_t i) {
  const ProfileRange range("mlp");
  project_gates(pass, i);
  multiply(pass, down_shape(), weights_.layers[static_cast<std::size_t>(i)].down, activated_.data(),
           model_.has_post_norms ? update_.data() : pass.residual);
}

void DeviceModel::project_gates(Pass& pass, std::int64_t i) {
  const DeviceLayer& layer = weights_.layers[static_cast<std::size_t>(i)];
  const bool is_gelu = model_.activation == Activation::GeluTanh;
  const GemmEpilogue epilogue = is_gelu ? GemmEpilogue::Gelu : GemmEpilogue::Silu;
  const auto n = static_cast<std::int32_t>(model_.ffn_dim);  // outputs, of two rows of weights each
  const InputNorm norm = {
      .post_weight = model_.has_post_norms ? layer.attention_post_norm.data() : nullptr,
      .weight = layer.mlp_norm.data()};
  if (pass.fuses_norms) {
    DecodeGemmArgs args =
        fused_args(pass, gate_up_shape(), layer.gate_up.data(), pass.residual, activated_.data());
    args.epilogue = epilogue;
    args.n = n;
    return multiply_normed(pass, norm, args);
  }
  normalise(pass, norm);
  if (!pass.tiles.empty()) {
    return launch_prefill_gemm(
        wgmma_args(gate_up_shape(), pass.tiles.at(gate_up_shape()), epilogue, layer.gate_up,
                   normed_.data(), activated_.data(), pass.arrays.num_tokens),
        pass.stream);
  }
  multiply(pass, gate_up_shape(), layer.gate_up, normed_.data(), gate_up_.data());
  launch_gated_activation({.gate_up = gate_up_.data(),
                           .out = activated_.data(),
                           .num_tokens = pass.arrays.num_tokens,
                           .dim = n,
                           .is_gelu = is_gelu},
                          pass.stream);
}

void DeviceModel::project_logits(Pass& pass) {
  const ProfileRange range("logits");
  const InputNorm norm = norm_before(model_.n_layers);
  const auto* rows = pass.at<std::int32_t>(pass.arrays.logit_tokens);
  if (pass.fuses_norms) {
    DecodeGemmArgs args =
        fused_args(pass, head_shape(), weights_.head(), pass.residual, logits_.data());
    args.rows = rows;
    args.num_tokens = pass.arrays.num_rows;
    return multiply_normed(pass, norm, args);
  }
  // Rows that are picked out cannot be updated on the way.
  if (norm.post_weight != nullptr) normalise(pass, {.post_weight = norm.post_weight});
  launch_norm({.residual = pass.residual,
               .weight = norm.weight,
               .rows = rows,
               .out = normed_.data(),
               .num_rows = pass.arrays.num_rows,
               .hidden_dim = static_cast<std::int32_t>(model_.hidden_dim),
               .eps = static_cast<float>(model_.norm_eps),
               .unit_offset = model_.has_unit_offset_norms},
              pass.stream);
  gemm_.run(head_shape(), pass.mode, pass.arrays.num_rows, weights_.head(), normed_.data(),
            logits_.data(), pass.stream);
}

void DeviceModel::sample(const Pass& pass) {
  const ProfileRange range("sample");
  launch_sample({.logits = logits_.data(),
                 .rows = pass.at<SampleRow>(pass.arrays.sample_rows),
                 .num_rows = pass.arrays.num_rows,
                 .vocab_size = static_cast<std::int32_t>(model_.vocab_size),
                 .scratch = sample_scratch_.data(),
                 .tokens = pass.sampled},
                pass.stream);
}

}  // namespace metronome
