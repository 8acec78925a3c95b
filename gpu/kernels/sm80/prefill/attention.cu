// SPDX-License-Identifier: Apache-2.0
// Attention of whole chunks: FlashAttention-2 (Dao 2023, arXiv:2307.08691) over a paged cache.
//
// A CTA computes 64 packed rows (token x query heads of one KV head) against the KV tiles that
// these rows attend to. Each of its four warps has 16 rows. All warps share the tiles, which
// cp.async loads one tile ahead. Scores and outputs are accumulators of mma.m16n8k16.
// common/prefill_rows.cuh explains why a row has the same bits in every chunk.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/base/error.h"
#include "gpu/kernels/common/prefill_rows.cuh"
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/launch.h"

namespace metronome {

namespace {

constexpr int kRows = kPrefillTileRows;
constexpr int kThreads = kRows / kWarpRows * 32;

// Shared memory: keys of stages 0 and 1, values of stages 0 and 1, queries, row offsets.
template <int kHeadDim>
struct Layout {
  static constexpr int kKvTile = kHeadDim == 256 ? 32 : 64;
  static constexpr int kChunks = kHeadDim / kChunkElements;  // per row
  static constexpr int kRowsAtOnce = kThreads / kChunks;     // rows that the CTA copies at once
  static constexpr int kStageBytes = kKvTile * kHeadDim * 2;
  static constexpr int kValueBytes = 2 * kStageBytes;
  static constexpr int kEndOfStages = 4 * kStageBytes;
  // Queries stay in registers if these suffice. Then they are loaded through the keys of stage 1,
  // which are not needed before.
  static constexpr bool kHasQueryRegisters = kHeadDim <= 128;
  static constexpr int kQueryBytes = kHasQueryRegisters ? kStageBytes : kEndOfStages;
  static constexpr int kOffsetBytes =
      kEndOfStages + (kHasQueryRegisters ? 0 : kRows * kHeadDim * 2);
  static constexpr int kSharedBytes =
      kOffsetBytes + 2 * kKvTile * static_cast<int>(sizeof(std::int64_t));
  static_assert(!kHasQueryRegisters || kRows * kHeadDim * 2 <= kStageBytes);
  static_assert(kSharedBytes <= 99 * 1024, "the most a CTA has on sm_86 and sm_89");
};

// Byte offset in a tile of a 16-byte chunk. The chunks of one column in eight rows lie in eight
// different groups of four banks, so ldmatrix has no bank conflict.
template <int kHeadDim>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  return (row * Layout<kHeadDim>::kChunks + (chunk ^ (row & 7))) * 16;
}

// Offset that a lane reads with ldmatrix in 16 x 16 elements. Lanes 0 to 7 have the left halves of
// rows 0 to 7, lanes 8 to 15 the right halves. Lanes 16 to 31 have rows 8 to 15 in the same way.
template <int kHeadDim>
__device__ __forceinline__ int lane_place() {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return swizzled<kHeadDim>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

// lane_place() of the 16 x 16 elements at `row` (a multiple of 8) and `chunk` (even). Cheaper than
// swizzled() in a loop: the lane's chunk is 0 or 1, so the exclusive or can be split.
template <int kHeadDim>
__device__ __forceinline__ int moved(int place, int row, int chunk) {
  return (place ^ (chunk % 8 * 16)) + chunk / 8 * 128 + row * kHeadDim * 2;
}

// Offset in elements of a position's row in keys and values; -1 if no row of the tile attends to
// it. Requires that none attends to a position before `begin`.
__device__ __forceinline__ std::int64_t kv_row_offset(const PrefillAttentionArgs& args,
                                                      const RowTile& rows, std::int32_t begin,
                                                      std::int32_t position) {
  if (position < begin || position >= rows.kv_end) return -1;
  const std::int32_t block_size = args.kv.block_size;
  const std::int32_t entry = position / block_size;
  const std::int64_t block = args.kv.block_tables[rows.table_start + entry];
  const std::int64_t head = block * args.shape.n_kv_heads + rows.kv_head;
  return (head * block_size + (position - entry * block_size)) * args.shape.head_dim;
}

// Starts the copy of a KV tile. All threads call it.
template <int kHeadDim>
__device__ __forceinline__ void load_kv(const PagedKv& kv, const std::int64_t* row_offsets,
                                        unsigned char* keys, unsigned char* values) {
  using L = Layout<kHeadDim>;
  const int thread = static_cast<int>(threadIdx.x);
  const int chunk = thread % L::kChunks;
#pragma unroll
  for (int i = 0; i < L::kKvTile / L::kRowsAtOnce; ++i) {
    const int row = i * L::kRowsAtOnce + thread / L::kChunks;
    const std::int64_t row_offset = row_offsets[row];
    const bool is_read = row_offset >= 0;
    const std::int64_t offset = (is_read ? row_offset : 0) + chunk * kChunkElements;
    const int to = swizzled<kHeadDim>(row, chunk);
    cp_async_16(keys + to, kv.keys + offset, is_read);
    cp_async_16(values + to, kv.values + offset, is_read);
  }
}

// Starts the copy of the query rows. All threads call it.
template <int kHeadDim>
__device__ __forceinline__ void load_queries(const PrefillAttentionArgs& args, const RowTile& rows,
                                             unsigned char* queries) {
  using L = Layout<kHeadDim>;
  const int thread = static_cast<int>(threadIdx.x);
  const int chunk = thread % L::kChunks;
#pragma unroll 1
  for (int row = thread / L::kChunks; row < kRows; row += L::kRowsAtOnce) {
    const std::int32_t from = rows.first_row + row;
    const bool is_read = from < rows.num_rows;
    const std::int64_t offset = is_read ? rows.query_offset(from, kHeadDim, args.shape.n_heads) : 0;
    cp_async_16(queries + swizzled<kHeadDim>(row, chunk),
                args.queries + offset + chunk * kChunkElements, is_read);
  }
}

// A warp's queries as operands of mma, 16 rows x 16 elements per step. Either all are in registers
// or none.
template <int kHeadDim>
struct Queries {
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr bool kHasRegisters = Layout<kHeadDim>::kHasQueryRegisters;

  std::uint32_t fragments[kHasRegisters ? kSteps : 1][4];
  const unsigned char* rows;  // in shared memory

  __device__ __forceinline__ Queries(const unsigned char* queries, int place)
      : rows(queries + static_cast<int>(threadIdx.x) / 32 * kWarpRows * kHeadDim * 2) {
    if constexpr (kHasRegisters) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) load(fragments[step], place, step);
    }
  }
  __device__ __forceinline__ const std::uint32_t (&fragment(int place, int step))[4] {
    if constexpr (kHasRegisters) return fragments[step];
    load(fragments[0], place, step);
    return fragments[0];
  }

 private:
  __device__ __forceinline__ void load(std::uint32_t (&a)[4], int place, int step) const {
    std::uint32_t r[4];
    ldmatrix_x4(r, rows + moved<kHeadDim>(place, 0, step * 2));
    a[0] = r[0];  // an operand has rows 8 to 15 of the left half second
    a[1] = r[2];
    a[2] = r[1];
    a[3] = r[3];
  }
};

// scores = queries * keys^T, unscaled.
template <int kHeadDim>
__device__ __forceinline__ void multiply_keys(Accumulators<Layout<kHeadDim>::kKvTile>& scores,
                                              Queries<kHeadDim>& queries, const unsigned char* keys,
                                              int place) {
  constexpr int kKvTile = Layout<kHeadDim>::kKvTile;
#pragma unroll
  for (int n = 0; n < kKvTile / 8; ++n) {
    for (float& score : scores[n]) score = 0;
  }
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const std::uint32_t(&a)[4] = queries.fragment(place, step);
#pragma unroll
    for (int n = 0; n < kKvTile / 8; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4(b, keys + moved<kHeadDim>(place, n * 8, step * 2));
      mma_m16n8k16(scores[n], a, {b[0], b[1]});
      mma_m16n8k16(scores[n + 1], a, {b[2], b[3]});
    }
  }
}

// out += weights * values. Rounds the weights to bfloat16.
template <int kHeadDim>
__device__ __forceinline__ void multiply_values(
    Accumulators<kHeadDim>& out, const Accumulators<Layout<kHeadDim>::kKvTile>& weights,
    const unsigned char* values, int place) {
#pragma unroll
  for (int step = 0; step < Layout<kHeadDim>::kKvTile / 16; ++step) {
    std::uint32_t a[4];
    pack_weights(a, weights, step);
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4_trans(b, values + moved<kHeadDim>(place, step * 16, n));
      mma_m16n8k16(out[n], a, {b[0], b[2]});
      mma_m16n8k16(out[n + 1], a, {b[1], b[3]});
    }
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    prefill_attention_kernel(const PrefillAttentionArgs args) {
  join_kernels();
  using L = Layout<kHeadDim>;
  constexpr int kKvTile = L::kKvTile;
  unsigned char* const keys = dynamic_shared_memory();
  unsigned char* const values = keys + L::kValueBytes;
  // Row offsets of each stage. They are computed two tiles ahead.
  auto* const row_offsets = reinterpret_cast<std::int64_t*>(keys + L::kOffsetBytes);

  const RowTile rows = row_tile<kRows>(args);
  if (rows.num_rows == 0) return;  // padding
  const int thread = static_cast<int>(threadIdx.x);
  const std::int32_t first_position = rows.kv_begin / kKvTile * kKvTile;

  load_queries<kHeadDim>(args, rows, keys + L::kQueryBytes);
  cp_async_commit();
  if (thread < 2 * kKvTile) {
    row_offsets[thread] = kv_row_offset(args, rows, rows.kv_begin, first_position + thread);
  }
  __syncthreads();
  load_kv<kHeadDim>(args.kv, row_offsets, keys, values);
  cp_async_commit();
  cp_async_wait<1>();
  __syncthreads();
  const int place = lane_place<kHeadDim>();
  Queries<kHeadDim> queries(keys + L::kQueryBytes, place);

  const std::int32_t row_positions[2] = {rows.position(lane_row(rows.first_row, thread, 0)),
                                         rows.position(lane_row(rows.first_row, thread, 1))};
  const float scale_log2 = args.shape.scale * kLog2OfE;
  RowSums<kHeadDim> sums;

  int stage = 0;
#pragma unroll 1
  for (std::int32_t position = first_position; position < rows.kv_end; position += kKvTile) {
    // The tile is complete for all threads, and no thread reads the other stage any more.
    cp_async_wait<0>();
    __syncthreads();
    if (position + kKvTile < rows.kv_end) {
      load_kv<kHeadDim>(args.kv, row_offsets + (1 - stage) * kKvTile,
                        keys + (1 - stage) * L::kStageBytes, values + (1 - stage) * L::kStageBytes);
      cp_async_commit();
    }
    Accumulators<kKvTile> scores;
    multiply_keys<kHeadDim>(scores, queries, keys + stage * L::kStageBytes, place);
    mask(scores, position, row_positions, args.shape.window);
    sums.weigh(scores, scale_log2);
    sums.correct();
    // Reads the table while the values are multiplied.
    std::int64_t next_offset = -1;
    if (thread < kKvTile) {
      next_offset = kv_row_offset(args, rows, 0, position + 2 * kKvTile + thread);
    }
    multiply_values<kHeadDim>(sums.out, scores, values + stage * L::kStageBytes, place);
    if (thread < kKvTile) row_offsets[stage * kKvTile + thread] = next_offset;
    stage = 1 - stage;
  }
  // Computes the tile again, so that the loop keeps no registers for it.
  store_rows<kHeadDim>(args, row_tile<kRows>(args), sums, thread);
}

template <int kHeadDim>
void launch_of(const PrefillAttentionArgs& args, cudaStream_t stream) {
  const std::int64_t num_ctas = std::int64_t{args.num_tiles} * args.shape.n_kv_heads;
  launch(prefill_attention_kernel<kHeadDim>,
         {dim3(static_cast<unsigned>(num_ctas)), dim3(kThreads), Layout<kHeadDim>::kSharedBytes},
         stream, args);
}

}  // namespace

void launch_prefill_attention(const PrefillAttentionArgs& args, cudaStream_t stream) {
  switch (args.shape.head_dim) {
    case 64: launch_of<64>(args, stream); break;
    case 128: launch_of<128>(args, stream); break;
    case 256: launch_of<256>(args, stream); break;
    default: METRONOME_CHECK(false, "head_dim must be 64, 128 or 256");
  }
}

}  // namespace metronome
