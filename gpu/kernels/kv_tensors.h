// The cache of one layer as Hopper's bulk copy engine sees it.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "gpu/kernels/kernels.h"

namespace metronome {

// Keys and values as tensors of num_rows x head_dim elements, num_rows = num_blocks * n_kv_heads *
// block_size; boxes of box_rows rows and 64 elements land in shared memory with the 128-byte
// swizzle. Made by make_kv_tensors (gpu/engine/device_kv_cache.h).
struct KvTensors {
  CUtensorMap keys;    // [num_rows, head_dim]
  CUtensorMap values;  // the same shape
  std::int32_t num_rows = 0;
  std::int32_t box_rows = 0;
};

// Positions of a KV tile of launch_wgmma_attention.
constexpr std::int32_t wgmma_kv_tile(std::int32_t head_dim) { return head_dim == 256 ? 64 : 128; }

// The longest run of positions that lies in one block wherever it begins at a multiple of itself in
// a tile: a power of two.
constexpr std::int32_t kv_box_rows(std::int32_t head_dim, std::int32_t block_size) {
  return std::min(block_size & -block_size, wgmma_kv_tile(head_dim));
}

// Whether launch_wgmma_attention takes caches of this block size: eight rows are what the swizzle
// is made of.
constexpr bool can_attend_by_wgmma(std::int32_t head_dim, std::int32_t block_size) {
  return kv_box_rows(head_dim, block_size) >= 8;
}

// Sums over spans of positions, between the CTAs that share a tile.
struct PrefillParts {
  float* parts = nullptr;                 // [num_parts, prefill_part_floats()]
  std::int32_t span_size = kPrefillSpan;  // positions, a multiple of wgmma_kv_tile()
  const PrefillMerge* merges = nullptr;   // [num_merges], the tiles whose spans are several CTAs'
  std::int32_t num_merges = 0;
};
std::int64_t prefill_part_floats(const AttentionShape& shape);

// launch_prefill_attention for compute capability 9.0, by wgmma and the bulk copy engine: tiles of
// kWgmmaTileRows rows, KV tiles of wgmma_kv_tile positions, full online softmax over each span and
// then over the spans. Chunk-invariant in the same way, and whoever does the spans; the bits are
// others than those of launch_prefill_attention. Requires can_attend_by_wgmma, tensors of the layer
// that args.kv names, and a part for each of args.tiles (tile i without a span uses part i) where
// some context is longer than a span, beside those that tiles and merges name.
void launch_wgmma_attention(const PrefillAttentionArgs& args, const PrefillParts& parts,
                            const KvTensors& tensors, cudaStream_t stream);

}  // namespace metronome
