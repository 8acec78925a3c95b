// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of prefill attention: the rows of a CTA, masks, the online softmax, and the
// stores. A warp has 16 rows of its CTA, a lane two of them, in the layout of the accumulators of
// mma and wgmma.
//
// A row's bits depend only on its query, its position and the positions it attends to:
// - KV tiles are at absolute positions, and a position has a fixed column in its tile. Sums run
//   over columns, k-steps and tiles in ascending order. Nothing depends on the row's index in the
//   CTA.
// - A CTA visits the tiles of all its rows, so a row sees tiles that are masked for it. They change
//   nothing. After the row's position its maximum stays, so the correction is exp2 of an exact 0,
//   and the weights are 0. Before its window the maximum stays -infinity. Then weights and
//   correction are 0, and the row's sums stay 0 as at the start.
// - A weight of 0 times a finite value is 0. Positions that some row of the CTA attends to hold
//   finite values. All other positions are not read; zeros replace them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/model/attention_mask.h"
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/kernels.h"

namespace metronome {

constexpr int kWarpRows = 16;
constexpr int kChunkElements = 8;  // in 16 bytes, the unit of copies
constexpr unsigned kAllLanes = 0xffffffffu;

// The work of a CTA: rows of one sequence from first_row on, for one KV head.
struct RowTile {
  std::int32_t kv_head = 0;
  std::int32_t group = 0;
  std::int32_t first_row = 0;
  std::int32_t num_rows = 0;        // of the sequence; rows from there on are zeros and not stored
  std::int32_t row_0_position = 0;  // row r is at row_0_position + r / group
  std::int32_t first_token = 0;     // of the sequence in the batch
  std::int32_t kv_begin = 0;        // [kv_begin, kv_end): positions that some row attends to
  std::int32_t kv_end = 0;
  std::int32_t table_start = 0;

  __device__ __forceinline__ std::int32_t position(std::int32_t row) const {
    return row_0_position + min(row, num_rows - 1) / group;
  }
  // Offset in elements from the start of queries and outputs.
  __device__ __forceinline__ std::int64_t query_offset(std::int32_t row, int head_dim,
                                                       std::int32_t n_heads) const {
    const std::int64_t token = first_token + row / group;
    return (token * n_heads + kv_head * group + row % group) * head_dim;
  }
};

template <int kRows>
__device__ __forceinline__ RowTile row_tile(const PrefillAttentionArgs& args, std::int32_t sequence,
                                            std::int32_t first_row, std::int32_t kv_head) {
  const std::int32_t first_token = args.query_start[sequence];
  const std::int32_t num_tokens = args.query_start[sequence + 1] - first_token;
  RowTile rows;
  rows.kv_head = kv_head;
  rows.group = args.shape.n_heads / args.shape.n_kv_heads;
  rows.first_row = first_row;
  rows.num_rows = num_tokens * rows.group;
  rows.row_0_position = args.context_lens[sequence] - num_tokens;
  rows.first_token = first_token;
  rows.kv_begin = first_attended(rows.position(first_row), args.shape.window);
  rows.kv_end = rows.position(first_row + kRows - 1) + 1;
  rows.table_start = args.kv.table_start[sequence];
  return rows;
}

// The index in args.tiles of the CTA's tile. Consecutive CTAs have one tile, one CTA for every KV
// head. So CTAs start in the host's order of tiles, longest first.
__device__ __forceinline__ std::int32_t tile_of_cta(const PrefillAttentionArgs& args) {
  return static_cast<std::int32_t>(blockIdx.x) / args.shape.n_kv_heads;
}
template <int kRows>
__device__ __forceinline__ RowTile row_tile(const PrefillAttentionArgs& args) {
  const PrefillTile tile = args.tiles[tile_of_cta(args)];
  const auto cta = static_cast<std::int32_t>(blockIdx.x);
  return row_tile<kRows>(args, tile.sequence, tile.first_row, cta % args.shape.n_kv_heads);
}

// A lane's part of two rows of a warp, lane / 4 and lane / 4 + 8. It has the columns (lane % 4) * 2
// and + 1 of every eight. Elements 0 and 1 of an accumulator belong to the first row, 2 and 3 to
// the second.
template <int kColumns>
using Accumulators = float[kColumns / 8][4];

// Row i, 0 or 1, of a thread. `thread` counts only the threads that have rows.
__device__ __forceinline__ std::int32_t lane_row(std::int32_t first_row, int thread, int i) {
  return first_row + thread / 32 * kWarpRows + thread % 32 / 4 + i * 8;
}

__device__ __forceinline__ std::uint32_t packed_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  std::memcpy(&bits, &pair, sizeof bits);
  return bits;
}

// The weights of 16 columns from 16 * step on, rounded to bfloat16, as the left operand of mma and
// wgmma.
template <int kCount>
__device__ __forceinline__ void pack_weights(std::uint32_t (&a)[4],
                                             const float (&weights)[kCount][4], int step) {
  const float(&left)[4] = weights[2 * step];
  const float(&right)[4] = weights[2 * step + 1];
  a[0] = packed_bf16(left[0], left[1]);
  a[1] = packed_bf16(left[2], left[3]);
  a[2] = packed_bf16(right[0], right[1]);
  a[3] = packed_bf16(right[2], right[3]);
}

// The online softmax of the lane's two rows.
template <int kHeadDim>
struct RowSums {
  Accumulators<kHeadDim> out;  // sum of weights * values; weights are relative to the maximum
  float maximum[2];            // of the unscaled scores
  float sum[2];                // of the weights in the lane's columns
  float correction[2];         // factor from weigh() that brings `out` to the new maximum

  __device__ __forceinline__ RowSums() {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      for (float& element : out[n]) element = 0;
    }
    for (int r = 0; r < 2; ++r) {
      maximum[r] = -INFINITY;
      sum[r] = 0;
      correction[r] = 1;
    }
  }

  // Turns a tile's scores into weights. 2^(score * scale_log2) is e^(scaled score). Does not change
  // `out`: correct() brings it to the new maximum.
  template <int kCount>
  __device__ __forceinline__ void weigh(float (&scores)[kCount][4], float scale_log2) {
    // Treats even and odd columns separately and both rows together. That makes the chains of
    // dependent operations shorter.
    float peaks[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) peaks[r][0] = peaks[r][1] = maximum[r];
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      for (int i = 0; i < 4; ++i) peaks[i / 2][i % 2] = fmaxf(peaks[i / 2][i % 2], scores[n][i]);
    }
    float shift_log2[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float peak = fmaxf(peaks[r][0], peaks[r][1]);
      peak = fmaxf(peak, __shfl_xor_sync(kAllLanes, peak, 1));
      peak = fmaxf(peak, __shfl_xor_sync(kAllLanes, peak, 2));
      const float shift = peak == -INFINITY ? 0.0f : peak;  // -inf - -inf would be NaN
      // Subtracts first: the difference of equal maxima is exactly 0. A fused multiply-add of the
      // products would not give that.
      correction[r] = exp2_fast((maximum[r] - shift) * scale_log2);
      shift_log2[r] = shift * scale_log2;
      maximum[r] = peak;
    }
    float tile_sums[2][2] = {};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = exp2_fast(fmaf(scores[n][i], scale_log2, -shift_log2[i / 2]));
        tile_sums[i / 2][i % 2] += scores[n][i];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] = fmaf(sum[r], correction[r], tile_sums[r][0] + tile_sums[r][1]);
    }
  }

  __device__ __forceinline__ void correct() {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      for (int i = 0; i < 4; ++i) out[n][i] *= correction[i / 2];
    }
  }
};

// Sets scores to -infinity where a row does not attend. `position` is that of the tile's column 0.
template <int kCount>
__device__ __forceinline__ void mask(float (&scores)[kCount][4], std::int32_t position,
                                     const std::int32_t (&row_positions)[2], std::int32_t window) {
  const bool is_seen_whole = position + kCount * 8 - 1 <= row_positions[0] &&
                             position >= first_attended(row_positions[1], window);
  if (__all_sync(kAllLanes, is_seen_whole)) return;
  const std::int32_t first = position + static_cast<std::int32_t>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!attends(row_positions[i / 2], first + n * 8 + i % 2, window)) scores[n][i] = -INFINITY;
    }
  }
}

// `thread` is counted as in lane_row().
template <int kHeadDim>
__device__ __forceinline__ void store_rows(const PrefillAttentionArgs& args, const RowTile& rows,
                                           const RowSums<kHeadDim>& sums, int thread) {
  const int column = thread % 4 * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = sums.sum[r];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const std::int32_t row = lane_row(rows.first_row, thread, r);
    if (row >= rows.num_rows) continue;
    const float factor = 1.0f / total;
    bf16* out = args.out + rows.query_offset(row, kHeadDim, args.shape.n_heads) + column;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      // Adding 0 turns -0 into 0. A correction may bring a sum down to -0; a later tile of zero
      // weights may or may not change that. The pair is stored as one aligned 4-byte word: the
      // compiler turns a memcpy into byte stores.
      *reinterpret_cast<__nv_bfloat162*>(out + n * 8) = __floats2bfloat162_rn(
          fmaf(sums.out[n][2 * r], factor, 0.0f), fmaf(sums.out[n][2 * r + 1], factor, 0.0f));
    }
  }
}

}  // namespace metronome
