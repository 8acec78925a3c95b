// SPDX-License-Identifier: Apache-2.0
// Tensor maps of one layer's cache, for Hopper's bulk copy engine.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "gpu/kernels/kernels.h"

namespace metronome {

// Keys and values as tensors of num_rows x head_dim elements, num_rows = num_blocks * n_kv_heads *
// block_size. Boxes of box_rows rows and 64 elements go to shared memory with the 128-byte swizzle.
// Made by make_kv_tensors (gpu/engine/device_kv_cache.h).
struct KvTensors {
  CUtensorMap keys;    // [num_rows, head_dim]
  CUtensorMap values;  // the same shape
  std::int32_t num_rows = 0;
  std::int32_t box_rows = 0;
};

// Positions in a KV tile of launch_wgmma_attention.
constexpr std::int32_t wgmma_kv_tile(std::int32_t head_dim) { return head_dim == 256 ? 64 : 128; }

// The most positions that one box can hold. A box starts at a multiple of its length within a tile,
// and must lie in one block. A power of two.
constexpr std::int32_t kv_box_rows(std::int32_t head_dim, std::int32_t block_size) {
  return std::min(block_size & -block_size, wgmma_kv_tile(head_dim));
}

// Whether launch_wgmma_attention supports caches of this block size. The swizzle has a period of
// eight rows.
constexpr bool can_attend_by_wgmma(std::int32_t head_dim, std::int32_t block_size) {
  return kv_box_rows(head_dim, block_size) >= 8;
}

// Sums over spans of positions, exchanged between CTAs that share a tile.
struct PrefillParts {
  float* parts = nullptr;                 // [num_parts, prefill_part_floats()]
  std::int32_t span_size = kPrefillSpan;  // positions, a multiple of wgmma_kv_tile()
  const PrefillMerge* merges = nullptr;   // [num_merges], tiles whose spans several CTAs compute
  std::int32_t num_merges = 0;
};
std::int64_t prefill_part_floats(const AttentionShape& shape);

// launch_prefill_attention for compute capability 9.0, by wgmma and the bulk copy engine. Tiles
// have kWgmmaTileRows rows, KV tiles wgmma_kv_tile positions. The online softmax runs over each
// span and then over the spans. Chunk-invariant in the same way, also if several CTAs compute the
// spans. The bits differ from those of launch_prefill_attention. Requires can_attend_by_wgmma and
// the tensors of the layer in args.kv. If some context is longer than a span, each of args.tiles
// needs a part, beside those that tiles and merges name: tile i without a span uses part i.
void launch_wgmma_attention(const PrefillAttentionArgs& args, const PrefillParts& parts,
                            const KvTensors& tensors, cudaStream_t stream);

}  // namespace metronome
