// SPDX-License-Identifier: Apache-2.0
// Attention of decodes, whose contexts are cut into splits (kernels.h).
//
// Reading keys and values once decides the time, so the kernel keeps loads in flight. The CTAs of
// the first kernel are persistent and loop over pairs of an item and a KV head. A CTA's warps share
// a split by position: warp t % kWarps has tile t, Tiling::kPositions positions counted from
// position 0 of the sequence. Every warp has its own ring of tiles in shared memory, keys and
// values in turn. It refills a slot as soon as it has read it, so warps do not wait for each other
// within a split. The query heads of the KV head are the rows of the matrix products; further rows
// are zeros.
//
// Planned KB in flight for each SM of an H200: 144 to 192 (head_dim 64), 96 to 192 (128), 64 to 128
// (256). A CTA has less at the start and the end of a split; the CTAs of an SM take turns there.
// 4.3 TB/s at 0.8 us of latency need 26 KB.
//
// The order of a decode's sums depends on positions alone. A warp's tiles ascend, the warps of a
// split are merged from 0 to kWarps - 1, and the parts of a decode in ascending order. Positions
// that the query does not attend to are never read: zeros replace their keys and values in shared
// memory. So contents of unwritten slots of the cache cannot reach a sum.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "core/model/attention_mask.h"
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/launch.h"

namespace metronome {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kMaxGroup = 16;  // rows of mma_m16n8k16
constexpr unsigned kAllLanes = 0xffffffffu;

template <int kHeadDim>
struct Tiling {
  static constexpr int kPositions = kHeadDim == 256 ? 16 : 32;  // per tile
  static constexpr int kStages = kHeadDim == 64 ? 4 : 2;        // tiles of a warp's ring
  static constexpr int kCtasPerSm = kHeadDim == 256 ? 2 : 3;
  static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(bf16));
  static constexpr int kTileBytes = kPositions * kRowBytes;
  static constexpr int kRingBytes = kStages * kTileBytes;
  static constexpr int kQueryBytes = kMaxGroup * kRowBytes;
  static constexpr int kMaxAndSumBytes = kWarps * kMaxGroup * static_cast<int>(sizeof(float2));
  static constexpr int kSharedBytes = kWarps * kRingBytes + kQueryBytes + kMaxAndSumBytes;
  static_assert(kStages % 2 == 0, "a place of the ring is for keys or for values");
  static_assert(kMaxGroup * kHeadDim * sizeof(float) <= kRingBytes, "sums go where the ring was");
  static_assert(kSharedBytes <= 99 * 1024, "the most a CTA has on every GPU from sm_80 on");
};

// An unfinished softmax of scores in units of log2: out = sum of exp2(score - max) * value,
// sum = sum of exp2(score - max).
struct MaxAndSum {
  float max = -INFINITY;
  float sum = 0;
};

// A part: [n_heads, head_dim] floats of `out`, then [n_heads] pairs of max and sum; padded to 16
// bytes.
__host__ __device__ std::int64_t partial_floats(const AttentionShape& shape) {
  return (std::int64_t{shape.n_heads} * (shape.head_dim + 2) + 3) / 4 * 4;
}

// One split of one decode, as seen by a lane. Small, because the next one is found during the work
// on the current one.
struct Work {
  std::int32_t token = -1;  // < 0: no work
  std::int32_t first = 0;   // positions [first, last] of the split that the query attends to
  std::int32_t last = -1;
  std::int32_t table_start = 0;
  // The cache position of the lane's token in the warp's next tile. It is looked up one tile ahead,
  // so that loads do not wait for it. Lane i has position i % kPositions. block < 0: not attended
  // to.
  std::int32_t block = -1;
  std::int32_t block_offset = 0;
};

// The first tile of this warp that contains positions >= `first`.
template <int kHeadDim>
__device__ __forceinline__ std::int32_t first_tile(std::int32_t first) {
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / 32;
  const std::int32_t tile = first / Tiling<kHeadDim>::kPositions;
  return tile + ((warp - tile) & (kWarps - 1));
}

template <int kHeadDim>
__device__ __forceinline__ void look_up(const PagedKv& kv, std::int32_t tile, Work& work) {
  constexpr int kPositions = Tiling<kHeadDim>::kPositions;
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  const std::int32_t position = tile * kPositions + lane % kPositions;
  work.block = -1;
  if (position < work.first || position > work.last) return;
  const std::int32_t index = position / kv.block_size;
  work.block_offset = position - index * kv.block_size;
  work.block = __ldg(kv.block_tables + work.table_start + index);
}

template <int kHeadDim>
__device__ __forceinline__ Work find_work(const DecodeAttentionArgs& args, std::int32_t pair,
                                          std::int32_t num_pairs) {
  Work work;
  if (pair >= num_pairs) return work;
  const std::int32_t item = pair / args.shape.n_kv_heads;
  const std::int32_t decode = __ldg(args.item_decode + item);
  const std::int32_t sequence = __ldg(args.sequences + decode);
  if (sequence < 0) return work;
  work.token = __ldg(args.query_start + sequence);
  work.table_start = __ldg(args.kv.table_start + sequence);
  const std::int32_t position = __ldg(args.context_lens + sequence) - 1;
  const std::int32_t attended = first_attended(position, args.shape.window);
  const std::int32_t split = attended / args.split_size + (item - __ldg(args.item_start + decode));
  const std::int32_t begin = split * args.split_size;
  work.first = max(attended, begin);
  work.last = min(position, begin + (args.split_size - 1));
  look_up<kHeadDim>(args.kv, first_tile<kHeadDim>(work.first), work);
  return work;
}

// Finds 16-byte chunks of a tile in shared memory. Chunks of a row are permuted by the row, so the
// same chunk of 8 rows, which ldmatrix reads at once, lies in different banks. Rows and chunks are
// sums without carry of a compile-time number and one that depends on the lane. So one address
// follows from another by one exclusive or and one addition.
template <int kHeadDim>
class LaneChunk {
 public:
  __device__ __forceinline__ LaneChunk(int row, int chunk)
      : base_(row * kRowBytes + chunk / 8 * 128), swizzle_(((row ^ chunk) & 7) * 16) {}

  __device__ __forceinline__ unsigned char* at(unsigned char* tile, int row, int chunk) const {
    return tile + (base_ + (swizzle_ ^ ((row ^ chunk) & 7) * 16)) +
           (row * kRowBytes + chunk / 8 * 128);
  }

 private:
  static constexpr int kRowBytes = Tiling<kHeadDim>::kRowBytes;
  int base_;
  int swizzle_;
};

// The index in floats of a warp's sum of a row and a column. Columns are permuted by the row,
// because a warp writes the same columns of 8 rows at once.
template <int kHeadDim>
__device__ __forceinline__ int sum_index(int row, int column) {
  return row * kHeadDim + (column ^ (row & 7) * 8);
}

// Copies the rows of the pair's query heads, then zeros, as one group of copies.
template <int kHeadDim>
__device__ __forceinline__ void load_queries(const DecodeAttentionArgs& args, std::int32_t token,
                                             std::int32_t kv_head, unsigned char* to) {
  constexpr int kChunks = kHeadDim / 8;
  const std::int32_t group = args.shape.n_heads / args.shape.n_kv_heads;
  const std::int64_t first_head =
      static_cast<std::int64_t>(token) * args.shape.n_heads + kv_head * group;
  for (int i = static_cast<int>(threadIdx.x); i < kMaxGroup * kChunks; i += kThreads) {
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    const bool is_valid = token >= 0 && row < group;
    const std::int64_t from = is_valid ? (first_head + row) * kHeadDim + chunk * 8 : 0;
    cp_async_16(LaneChunk<kHeadDim>(row, chunk).at(to, 0, 0), args.queries + from, is_valid);
  }
  cp_async_commit();
}

// Fills a warp's ring in reading order: keys of a tile, its values, keys of the next one. Every
// call commits one group of copies, even an empty one.
template <int kHeadDim>
class TileLoader {
 public:
  using Tiles = Tiling<kHeadDim>;

  __device__ __forceinline__ TileLoader(const DecodeAttentionArgs& args, const Work& work,
                                        std::int32_t kv_head)
      : args_(args), work_(work), kv_head_(kv_head), tile_(first_tile<kHeadDim>(work.first)) {}

  __device__ __forceinline__ void load_keys(unsigned char* tile) {
    if (tile_ * Tiles::kPositions <= work_.last) {
      const std::int32_t head = work_.block * args_.shape.n_kv_heads + kv_head_;
      row_ = work_.block < 0 ? -1 : head * args_.kv.block_size + work_.block_offset;
      copy(args_.kv.keys, tile);
      tile_ += kWarps;
      look_up<kHeadDim>(args_.kv, tile_, work_);
      loads_values_ = true;
    }
    cp_async_commit();
  }

  // Loads the values of the tile whose keys were loaded last.
  __device__ __forceinline__ void load_values(unsigned char* tile) {
    if (loads_values_) copy(args_.kv.values, tile);
    loads_values_ = false;
    cp_async_commit();
  }

 private:
  __device__ __forceinline__ void copy(const bf16* pool, unsigned char* tile) const {
    constexpr int kChunks = Tiles::kRowBytes / 16;  // per row
    constexpr int kRows = 32 / kChunks;             // rows the warp copies at once
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int chunk = lane % kChunks;
    const LaneChunk<kHeadDim> to(lane / kChunks, chunk);
    const bf16* const from = pool + chunk * 8;
#pragma unroll 8  // all 16 with head_dim 256 need too many registers
    for (int i = 0; i < Tiles::kPositions; i += kRows) {
      const std::int32_t row = __shfl_sync(kAllLanes, row_, i + lane / kChunks);
      const bool is_valid = row >= 0;
      cp_async_16(to.at(tile, i, 0),
                  from + (is_valid ? static_cast<std::int64_t>(row) * kHeadDim : 0), is_valid);
    }
  }

  const DecodeAttentionArgs& args_;
  Work work_;
  std::int32_t kv_head_;
  std::int32_t tile_;  // the next to load
  // The pool row, of head_dim elements, of the lane's position in the tile; < 0: not attended to. A
  // pool of 2^31 rows would have 256 GiB.
  std::int32_t row_ = -1;
  bool loads_values_ = false;
};

__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  std::memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// A warp's part of a split. Fragments follow the PTX ISA: in lane i, elements 0 and 1 belong to row
// i / 4, elements 2 and 3 to row i / 4 + 8. Columns are (i % 4) * 2 and the next one.
template <int kHeadDim>
class WarpAttention {
 public:
  using Tiles = Tiling<kHeadDim>;
  static constexpr int kBlocks = Tiles::kPositions / 8;
  using Scores = float[kBlocks][4];

  // scores = queries * keys. Both operands are in shared memory.
  __device__ __forceinline__ void multiply_keys(unsigned char* queries, unsigned char* keys,
                                                Scores& scores) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const LaneChunk<kHeadDim> of_queries(lane % 16, lane / 16);
    const LaneChunk<kHeadDim> of_keys(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[j][e] = 0;
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; ++i) {
      std::uint32_t q[4];
      ldmatrix_x4(q, of_queries.at(queries, 0, i * 2));
#pragma unroll
      for (int j = 0; j < kBlocks; j += 2) {
        std::uint32_t k[4];
        ldmatrix_x4(k, of_keys.at(keys, j * 8, i * 2));
        mma_m16n8k16(scores[j], q, {k[0], k[1]});
        mma_m16n8k16(scores[j + 1], q, {k[2], k[3]});
      }
    }
  }

  // One step of the online softmax: turns scores into weights. Masks the columns outside
  // [first_column, last_column]; at least one is inside.
  __device__ __forceinline__ void step(Scores& scores, float scale, int first_column,
                                       int last_column) {
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
    const bool is_whole = first_column <= 0 && last_column >= Tiles::kPositions - 1;
    float top[2] = {rows_[0].max, rows_[1].max};
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = j * 8 + column + e % 2;
        scores[j][e] *= scale;
        if (!is_whole && (at < first_column || at > last_column)) scores[j][e] = -INFINITY;
        top[e / 2] = fmaxf(top[e / 2], scores[j][e]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(kAllLanes, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(kAllLanes, top[r], 2));
      const float correction = exp2_fast(rows_[r].max - top[r]);
      rows_[r].max = top[r];
      rows_[r].sum *= correction;
#pragma unroll
      for (int d = 0; d < kHeadDim / 8; ++d) {
        out_[d][2 * r] *= correction;
        out_[d][2 * r + 1] *= correction;
      }
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        scores[j][2 * r] = exp2_fast(scores[j][2 * r] - top[r]);
        scores[j][2 * r + 1] = exp2_fast(scores[j][2 * r + 1] - top[r]);
        rows_[r].sum += scores[j][2 * r] + scores[j][2 * r + 1];
      }
    }
  }

  __device__ __forceinline__ void add_values(unsigned char* values, const Scores& weights) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const LaneChunk<kHeadDim> of_values(lane % 16, lane / 16);
#pragma unroll
    for (int j = 0; j < kBlocks; j += 2) {
      const std::uint32_t p[4] = {
          pack(weights[j][0], weights[j][1]), pack(weights[j][2], weights[j][3]),
          pack(weights[j + 1][0], weights[j + 1][1]), pack(weights[j + 1][2], weights[j + 1][3])};
#pragma unroll
      for (int d = 0; d < kHeadDim / 8; d += 2) {
        std::uint32_t v[4];
        ldmatrix_x4_trans(v, of_values.at(values, j * 8, d));
        mma_m16n8k16(out_[d], p, {v[0], v[1]});
        mma_m16n8k16(out_[d + 1], p, {v[2], v[3]});
      }
    }
  }

  // Writes the first `group` rows: their sums, and max and sum of each. Until here, a lane's `sum`
  // covers its own columns only.
  __device__ __forceinline__ void store(float* sums, float2* max_and_sum, int group) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows_[r].sum += __shfl_xor_sync(kAllLanes, rows_[r].sum, 1);
      rows_[r].sum += __shfl_xor_sync(kAllLanes, rows_[r].sum, 2);
      const int row = lane / 4 + 8 * r;
      if (row >= group) continue;
      if (lane % 4 == 0) max_and_sum[row] = make_float2(rows_[r].max, rows_[r].sum);
#pragma unroll
      for (int d = 0; d < kHeadDim / 8; ++d) {
        *reinterpret_cast<float2*>(sums + sum_index<kHeadDim>(row, d * 8 + lane % 4 * 2)) =
            make_float2(out_[d][2 * r], out_[d][2 * r + 1]);
      }
    }
  }

 private:
  float out_[kHeadDim / 8][4] = {};
  MaxAndSum rows_[2];
};

// Merges the warps' results in shared memory, in order of warps, into the part of the item.
template <int kHeadDim>
__device__ __forceinline__ void store_part(const DecodeAttentionArgs& args, std::int32_t pair,
                                           const unsigned char* rings, const float2* max_and_sum) {
  using Tiles = Tiling<kHeadDim>;
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const std::int32_t item = pair / args.shape.n_kv_heads;
  const std::int32_t head = (pair - item * args.shape.n_kv_heads) * group;
  float* const part = args.partials + item * partial_floats(args.shape);
  float* const part_max_and_sum = part + args.shape.n_heads * kHeadDim;
  for (int i = static_cast<int>(threadIdx.x); i < group * (kHeadDim / 4); i += kThreads) {
    const int row = i / (kHeadDim / 4);
    const int column = i % (kHeadDim / 4) * 4;
    MaxAndSum merged;
    for (int w = 0; w < kWarps; ++w) {
      merged.max = fmaxf(merged.max, max_and_sum[w * kMaxGroup + row].x);
    }
    float4 out = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 of_warp = max_and_sum[w * kMaxGroup + row];
      const float weight = exp2_fast(of_warp.x - merged.max);
      const float4 sums = *reinterpret_cast<const float4*>(
          reinterpret_cast<const float*>(rings + w * Tiles::kRingBytes) +
          sum_index<kHeadDim>(row, column));
      out.x += weight * sums.x;
      out.y += weight * sums.y;
      out.z += weight * sums.z;
      out.w += weight * sums.w;
      merged.sum += weight * of_warp.y;
    }
    *reinterpret_cast<float4*>(part + (head + row) * kHeadDim + column) = out;
    if (column == 0) {
      *reinterpret_cast<float2*>(part_max_and_sum + (head + row) * 2) =
          make_float2(merged.max, merged.sum);
    }
  }
}

// `scale` is the shape's scale in units of log2.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, Tiling<kHeadDim>::kCtasPerSm)
    decode_attention_kernel(const DecodeAttentionArgs args, const float scale) {
  join_kernels();
  using Tiles = Tiling<kHeadDim>;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  unsigned char* const rings = dynamic_shared_memory();
  unsigned char* const ring = rings + warp * Tiles::kRingBytes;
  unsigned char* const queries = rings + kWarps * Tiles::kRingBytes;
  float2* const max_and_sum = reinterpret_cast<float2*>(queries + Tiles::kQueryBytes);
  const std::int32_t num_pairs = __ldg(args.item_start + args.num_decodes) * args.shape.n_kv_heads;
  const std::int32_t stride = static_cast<std::int32_t>(gridDim.x);

  std::int32_t pair = static_cast<std::int32_t>(blockIdx.x);
  Work next = find_work<kHeadDim>(args, pair, num_pairs);
  for (; pair < num_pairs; pair += stride) {
    const Work work = next;
    const std::int32_t kv_head = pair % args.shape.n_kv_heads;
    TileLoader<kHeadDim> loader(args, work, kv_head);
    load_queries<kHeadDim>(args, work.token, kv_head, queries);
#pragma unroll
    for (int i = 0; i < Tiles::kStages; i += 2) {
      loader.load_keys(ring + i * Tiles::kTileBytes);
      loader.load_values(ring + (i + 1) * Tiles::kTileBytes);
    }
    // Finds the next pair, a chain of loads, while the first tiles are in flight.
    next = find_work<kHeadDim>(args, pair + stride, num_pairs);
    cp_async_wait<Tiles::kStages>();
    __syncthreads();  // all warps have copied queries

    WarpAttention<kHeadDim> attention;
    int place = 0;  // slot of the ring with the tile's keys; its values follow
    std::int32_t tile = first_tile<kHeadDim>(work.first);
    for (; tile * Tiles::kPositions <= work.last; tile += kWarps) {
      unsigned char* const keys = ring + place * Tiles::kTileBytes;
      unsigned char* const values = keys + Tiles::kTileBytes;
      typename WarpAttention<kHeadDim>::Scores scores;
      cp_async_wait<Tiles::kStages - 1>();
      __syncwarp();
      attention.multiply_keys(queries, keys, scores);
      __syncwarp();
      loader.load_keys(keys);
      attention.step(scores, scale, work.first - tile * Tiles::kPositions,
                     work.last - tile * Tiles::kPositions);
      cp_async_wait<Tiles::kStages - 1>();
      __syncwarp();
      attention.add_values(values, scores);
      __syncwarp();
      loader.load_values(values);
      place = (place + 2) % Tiles::kStages;
    }
    attention.store(reinterpret_cast<float*>(ring), max_and_sum + warp * kMaxGroup,
                    args.shape.n_heads / args.shape.n_kv_heads);
    __syncthreads();
    if (work.token >= 0) store_part<kHeadDim>(args, pair, rings, max_and_sum);
    __syncthreads();  // the ring may be reused
  }
}

// One CTA of head_dim threads for every decode and query head.
template <int kHeadDim>
__global__ void __launch_bounds__(kHeadDim) merge_parts_kernel(const DecodeAttentionArgs args) {
  join_kernels();
  constexpr int kParts = 16;  // loaded at once
  const std::int32_t decode = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t column = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t sequence = __ldg(args.sequences + decode);
  if (sequence < 0) return;
  const std::int32_t begin = __ldg(args.item_start + decode);
  const std::int32_t end = __ldg(args.item_start + decode + 1);
  const std::int64_t part_floats = partial_floats(args.shape);
  const float* const values = args.partials + head * kHeadDim + column;
  const float* const max_and_sums = args.partials + args.shape.n_heads * kHeadDim + head * 2;

  MaxAndSum merged;
  float out = 0;
  for (std::int32_t first = begin; first < end; first += kParts) {
    float2 max_and_sum[kParts];
    float value[kParts];
    float top = merged.max;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const bool is_part = first + i < end;
      const std::int64_t at = (first + i) * part_floats;
      max_and_sum[i] =
          is_part ? *reinterpret_cast<const float2*>(max_and_sums + at) : make_float2(-INFINITY, 0);
      value[i] = is_part ? values[at] : 0;
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i) top = fmaxf(top, max_and_sum[i].x);
    const float correction = exp2_fast(merged.max - top);
    merged.max = top;
    merged.sum *= correction;
    out *= correction;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const float weight = exp2_fast(max_and_sum[i].x - top);
      merged.sum += weight * max_and_sum[i].y;
      out += weight * value[i];
    }
  }
  const std::int64_t token = __ldg(args.query_start + sequence);
  args.out[(token * args.shape.n_heads + head) * kHeadDim + column] =
      __float2bfloat16_rn(out / merged.sum);
}

template <int kHeadDim>
void launch_kernels(const DecodeAttentionArgs& args, cudaStream_t stream) {
  const dim3 ctas(static_cast<unsigned>(args.num_ctas));
  const dim3 rows(static_cast<unsigned>(args.num_decodes),
                  static_cast<unsigned>(args.shape.n_heads));
  launch(decode_attention_kernel<kHeadDim>,
         {ctas, dim3(kThreads), static_cast<std::size_t>(Tiling<kHeadDim>::kSharedBytes)}, stream,
         args, args.shape.scale * kLog2OfE);
  launch(merge_parts_kernel<kHeadDim>, {rows, dim3(kHeadDim), 0}, stream, args);
}

template <int kHeadDim>
std::int32_t count_ctas() {
  int device = 0;
  int num_sms = 0;
  int per_sm = 0;
  constexpr int kBytes = Tiling<kHeadDim>::kSharedBytes;
  const auto kernel = decode_attention_kernel<kHeadDim>;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "cudaFuncSetAttribute");
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, kThreads, kBytes),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return num_sms * std::max(per_sm, 1);
}

[[noreturn]] void refuse(const AttentionShape& shape) {
  throw CudaError("decode attention: no kernel for " + std::to_string(shape.n_heads) + " heads, " +
                  std::to_string(shape.n_kv_heads) + " KV heads of " +
                  std::to_string(shape.head_dim));
}

}  // namespace

bool can_split_decode(const AttentionShape& shape) {
  const bool has_head_dim = shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256;
  return has_head_dim && shape.n_kv_heads > 0 && shape.n_heads % shape.n_kv_heads == 0 &&
         shape.n_heads / shape.n_kv_heads <= kMaxGroup;
}

std::int64_t decode_partial_floats(const AttentionShape& shape) { return partial_floats(shape); }

std::int32_t decode_attention_ctas(const AttentionShape& shape) {
  if (!can_split_decode(shape)) refuse(shape);
  // Queried once, for the device that is current then.
  static const std::int32_t ctas_64 = count_ctas<64>();
  static const std::int32_t ctas_128 = count_ctas<128>();
  static const std::int32_t ctas_256 = count_ctas<256>();
  return shape.head_dim == 64 ? ctas_64 : shape.head_dim == 128 ? ctas_128 : ctas_256;
}

void launch_decode_attention(const DecodeAttentionArgs& args, cudaStream_t stream) {
  if (!can_split_decode(args.shape)) refuse(args.shape);
  if (args.num_decodes == 0) return;
  switch (args.shape.head_dim) {
    case 64: return launch_kernels<64>(args, stream);
    case 128: return launch_kernels<128>(args, stream);
    default: return launch_kernels<256>(args, stream);
  }
}

}  // namespace metronome
