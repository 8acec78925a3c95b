// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/attention.h"

#include <cmath>
#include <cstddef>

#include "core/base/error.h"
#include "core/model/attention_mask.h"
#include "gpu/kernels/kv_tensors.h"

namespace metronome {

AttentionShape attention_shape_of(const ModelConfig& model, bool is_window) {
  const double scalar = model.query_pre_attn_scalar > 0 ? model.query_pre_attn_scalar
                                                        : static_cast<double>(model.head_dim);
  return {.n_heads = static_cast<std::int32_t>(model.n_heads),
          .n_kv_heads = static_cast<std::int32_t>(model.n_kv_heads),
          .head_dim = static_cast<std::int32_t>(model.head_dim),
          .window = is_window ? static_cast<std::int32_t>(model.sliding_window) : kNoWindow,
          .scale = static_cast<float>(1.0 / std::sqrt(scalar))};
}

Attention::Attention(const ModelConfig& model, std::int32_t max_items, std::int32_t max_parts)
    : shape_(attention_shape_of(model, false)),
      window_shape_(attention_shape_of(model, true)),
      max_parts_(max_parts),
      parts_(static_cast<std::size_t>(max_parts * prefill_part_floats(shape_))) {
  if (!can_split_decode(shape_)) return;
  partials_ =
      DeviceArray<float>(static_cast<std::size_t>(max_items * decode_partial_floats(shape_)));
  decode_ctas_ = decode_attention_ctas(shape_);
}

void Attention::run(const PassArrays& arrays, const DeviceKvCache& kv, const AttentionRows& rows,
                    cudaStream_t stream) const {
  const PagedKv paged = {.keys = kv.keys(rows.layer),
                         .values = kv.values(rows.layer),
                         .block_tables = arrays.block_tables(rows.is_window),
                         .table_start = arrays.table_start(rows.is_window),
                         .block_size = static_cast<std::int32_t>(kv.shape().block_size)};
  if (arrays->tiles.count > 0) attend_prompts(arrays, kv, paged, rows, stream);
  if (arrays->num_decodes > 0) attend_decodes(arrays, paged, rows, stream);
}

// Uses wgmma if the cache has tensors.
void Attention::attend_prompts(const PassArrays& arrays, const DeviceKvCache& kv,
                               const PagedKv& paged, const AttentionRows& rows,
                               cudaStream_t stream) const {
  PrefillAttentionArgs args = {.shape = shape(rows.is_window),
                               .kv = paged,
                               .queries = rows.queries,
                               .query_start = arrays.at(arrays->query_start),
                               .context_lens = arrays.at(arrays->context_lens),
                               .tiles = arrays.at<PrefillTile>(arrays->tiles),
                               .num_tiles = static_cast<std::int32_t>(arrays->tiles.count),
                               .out = rows.out};
  const KvTensors* const tensors = kv.tensors(rows.layer);
  if (tensors == nullptr) return launch_prefill_attention(args, stream);
  METRONOME_CHECK(arrays->tiles.count <= static_cast<std::size_t>(max_parts_),
                  "a part for every tile");
  PrefillParts parts = {.parts = parts_.data(), .span_size = arrays->span_size};
  if (!rows.is_window && arrays->span_tiles.count > 0) {
    args.tiles = arrays.at<PrefillTile>(arrays->span_tiles);
    args.num_tiles = static_cast<std::int32_t>(arrays->span_tiles.count);
    parts.merges = arrays.at<PrefillMerge>(arrays->merges);
    parts.num_merges = static_cast<std::int32_t>(arrays->merges.count);
  }
  launch_wgmma_attention(args, parts, *tensors, stream);
}

void Attention::attend_decodes(const PassArrays& arrays, const PagedKv& paged,
                               const AttentionRows& rows, cudaStream_t stream) const {
  launch_decode_attention({.shape = shape(rows.is_window),
                           .kv = paged,
                           .queries = rows.queries,
                           .query_start = arrays.at(arrays->query_start),
                           .context_lens = arrays.at(arrays->context_lens),
                           .sequences = arrays.at(arrays->decodes),
                           .item_start = arrays.item_start(rows.is_window),
                           .item_decode = arrays.item_decode(rows.is_window),
                           .num_decodes = arrays->num_decodes,
                           .split_size = arrays->split_size,
                           .num_ctas = decode_ctas_,
                           .partials = partials_.data(),
                           .out = rows.out},
                          stream);
}

}  // namespace metronome
