// SPDX-License-Identifier: Apache-2.0
// Attention of whole chunks on Hopper: FlashAttention-3 (Shah et al. 2024, arXiv:2407.08608) over a
// paged cache.
//
// A CTA computes 128 packed rows (token x query heads of one KV head), 64 for each of two
// warpgroups. It visits the KV tiles that these rows attend to. Two warps of a third warpgroup load
// the tiles through the bulk copy engine, one the keys and one the values. Each piece of a block in
// a tile is one box. The products of a tile's scores run together with those of the previous tile's
// values. So the tensor cores work while a warpgroup computes its softmax. The other warpgroup
// fills the remaining gaps.
//
// Positions are summed in spans. Each span starts from zero, and its sums are added to those of the
// spans before. If a pass has few tiles for the GPU, each span gets its own CTA, and a second
// kernel adds the spans. It uses the same operations in the same order, so the bits are the same.
// common/prefill_rows.cuh explains why a row has the same bits in every chunk.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/base/error.h"
#include "gpu/kernels/common/hopper_ptx.h"
#include "gpu/kernels/common/prefill_rows.cuh"
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/common/warpgroups.cuh"
#include "gpu/kernels/kv_tensors.h"
#include "gpu/kernels/launch.h"

#ifdef __CUDACC__
#pragma nv_diag_suppress 177  // on targets without wgmma, which use little of this file
#endif

namespace metronome {

namespace {

constexpr int kGroups = kWgmmaTileRows / kGroupRows;  // computing warpgroups
constexpr int kThreads = (1 + kGroups) * kGroupThreads;
constexpr int kPartColumns = 64;
static_assert(kGroups == 2, "they trade registers with the loader");

template <int kStages>
struct Barriers {
  SharedBarrier keys_full[kStages];
  SharedBarrier values_full[kStages];
  SharedBarrier keys_empty[kStages];
  SharedBarrier values_empty[kStages];
  SharedBarrier queries[kGroups];
};

// Shared memory: keys and values of the stages, queries of the warpgroups, barriers. Tiles and
// queries are stored in parts of 64 columns.
template <int kHeadDim>
struct Layout {
  static constexpr int kStages = kHeadDim == 256 ? 2 : 3;
  static constexpr int kKvTile = wgmma_kv_tile(kHeadDim);
  static constexpr int kParts = kHeadDim / kPartColumns;
  static constexpr int kChunks = kHeadDim / kChunkElements;  // per row
  static constexpr int kPartBytes = kKvTile * kRowBytes;
  static constexpr int kTileBytes = kParts * kPartBytes;
  static constexpr int kQueryPartBytes = kGroupRows * kRowBytes;
  static constexpr int kValues = kStages * kTileBytes;
  static constexpr int kQueries = 2 * kStages * kTileBytes;
  static constexpr int kBarriers = kQueries + kGroups * kParts * kQueryPartBytes;
  static constexpr int kSharedBytes = kBarriers + static_cast<int>(sizeof(Barriers<kStages>));
  static_assert(kSharedBytes <= kMaxSharedBytes);

  unsigned char* memory;

  __device__ __forceinline__ unsigned char* keys(int stage) const {
    return memory + stage * kTileBytes;
  }
  __device__ __forceinline__ unsigned char* values(int stage) const {
    return memory + kValues + stage * kTileBytes;
  }
  __device__ __forceinline__ unsigned char* queries(int group) const {
    return memory + kQueries + group * kParts * kQueryPartBytes;
  }
  __device__ __forceinline__ Barriers<kStages>& barriers() const {
    return *reinterpret_cast<Barriers<kStages>*>(memory + kBarriers);
  }
};

// Byte offset in a tile of a row's 16-byte chunk.
template <int kTilePartBytes>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  constexpr int kPartChunks = kPartColumns / kChunkElements;
  return chunk / kPartChunks * kTilePartBytes + row * kRowBytes +
         (chunk % kPartChunks ^ row % 8) * 16;
}

// The stage of a tile of the CTA, and the parity of its barriers' phases.
template <int kStages>
struct Turn {
  int stage;
  std::uint32_t parity;

  __device__ __forceinline__ explicit Turn(std::int32_t tile)
      : stage(static_cast<int>(tile % kStages)),
        parity(static_cast<std::uint32_t>(tile / kStages % 2)) {}
};

template <int kHeadDim>
__device__ __forceinline__ std::int32_t first_tile_position(const RowTile& rows) {
  constexpr int kKvTile = Layout<kHeadDim>::kKvTile;
  return rows.kv_begin / kKvTile * kKvTile;
}

// The positions of a tile that lie in one block and are copied at once.
struct Box {
  std::int32_t row = 0;  // of the tensors; one past the last if no row of the CTA attends to it
  bool is_cut = false;   // rows attend to some of its positions, but not all
};

__device__ __forceinline__ Box box_at(const PrefillAttentionArgs& args, const KvTensors& tensors,
                                      const RowTile& rows, std::int32_t position) {
  const std::int32_t end = position + tensors.box_rows;
  Box box{tensors.num_rows, false};
  if (end <= rows.kv_begin || position >= rows.kv_end) return box;
  const std::int32_t block_size = args.kv.block_size;
  const std::int32_t entry = position / block_size;
  const std::int32_t block = args.kv.block_tables[rows.table_start + entry];
  box.row =
      (block * args.shape.n_kv_heads + rows.kv_head) * block_size + (position - entry * block_size);
  box.is_cut = position < rows.kv_begin || end > rows.kv_end;
  return box;
}

// Copies the values of a cut box with all lanes of a warp. Writes zeros where no row attends,
// because that memory may hold NaN. `position` and `first_row` are the box's start in the context
// and in the tensor. `to` is the tile, `tile_row` the box's first row in it.
template <int kHeadDim>
__device__ __forceinline__ void copy_cut_values(const PrefillAttentionArgs& args,
                                                const RowTile& rows, std::int32_t position,
                                                std::int32_t first_row, int box_rows,
                                                unsigned char* to, int tile_row) {
  using L = Layout<kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int i = lane; i < box_rows * L::kChunks; i += 32) {
    const int row = i / L::kChunks;
    const int chunk = i % L::kChunks;
    uint4 elements = {0, 0, 0, 0};
    if (position + row >= rows.kv_begin && position + row < rows.kv_end) {
      const std::int64_t offset =
          (std::int64_t{first_row} + row) * kHeadDim + chunk * kChunkElements;
      elements = *reinterpret_cast<const uint4*>(args.kv.values + offset);
    }
    *reinterpret_cast<uint4*>(to + swizzled<L::kPartBytes>(tile_row + row, chunk)) = elements;
  }
}

// Starts a warp's copies of a tile: lane i copies box i. Leaves out the boxes in `cut` (bits),
// which copy_cut_values() fills.
template <int kHeadDim>
__device__ __forceinline__ void start_copies(const CUtensorMap& tensor, const Box& box,
                                             int box_rows, unsigned cut, unsigned char* to,
                                             SharedBarrier* full) {
  using L = Layout<kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_boxes = L::kKvTile / box_rows;
  if (lane == 0) {
    const int num_copied = num_boxes - __popc(cut);
    barrier_expect(full, static_cast<std::uint32_t>(num_copied * box_rows * kHeadDim * 2));
  }
  __syncwarp();
  if (lane < num_boxes && (cut >> lane & 1u) == 0) {
    to += lane * box_rows * kRowBytes;
#pragma unroll
    for (int part = 0; part < L::kParts; ++part) {
      copy_box(to + part * L::kPartBytes, tensor, part * kPartColumns, box.row, full);
    }
  }
}

// The work of a loading warp: loads the keys or the values of all KV tiles of the CTA.
template <bool kAreValues, int kHeadDim>
__device__ __forceinline__ void load_tiles(const PrefillAttentionArgs& args,
                                           const KvTensors& tensors, const RowTile& rows,
                                           const Layout<kHeadDim>& shared) {
  constexpr int kKvTile = Layout<kHeadDim>::kKvTile;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int box_rows = tensors.box_rows;
  auto& barriers = shared.barriers();
  SharedBarrier* const fulls = kAreValues ? barriers.values_full : barriers.keys_full;
  SharedBarrier* const empties = kAreValues ? barriers.values_empty : barriers.keys_empty;
  const bool has_box = lane * box_rows < kKvTile;
  const std::int32_t offset = has_box ? lane * box_rows : 0;
  std::int32_t position = first_tile_position<kHeadDim>(rows);
  Box box = box_at(args, tensors, rows, position + offset);
#pragma unroll 1
  for (std::int32_t tile = 0; position < rows.kv_end; ++tile) {
    const Turn<Layout<kHeadDim>::kStages> turn(tile);
    SharedBarrier* const full = &fulls[turn.stage];
    unsigned char* const to = kAreValues ? shared.values(turn.stage) : shared.keys(turn.stage);
    // Keys need no zeros: mask() replaces the scores of positions that a row does not attend to.
    const unsigned cut = kAreValues ? __ballot_sync(kAllLanes, has_box && box.is_cut) : 0;
    barrier_wait(&empties[turn.stage], turn.parity ^ 1);
    start_copies<kHeadDim>(kAreValues ? tensors.values : tensors.keys, box, box_rows, cut, to,
                           full);
    for (unsigned rest = cut; rest != 0; rest &= rest - 1) {
      const int owner = __ffs(static_cast<int>(rest)) - 1;
      const std::int32_t row = __shfl_sync(kAllLanes, box.row, owner);
      copy_cut_values<kHeadDim>(args, rows, position + owner * box_rows, row, box_rows, to,
                                owner * box_rows);
      fence_async_proxy();
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(full);
    // Looks up the next box before the next wait, so that the two latencies overlap.
    position += kKvTile;
    box = box_at(args, tensors, rows, position + offset);
  }
}

// Copies the warpgroup's queries to shared memory.
template <int kHeadDim>
__device__ __forceinline__ void load_queries(const PrefillAttentionArgs& args, const RowTile& rows,
                                             int group, int thread, unsigned char* queries,
                                             SharedBarrier* ready) {
  using L = Layout<kHeadDim>;
#pragma unroll 4
  for (int i = thread; i < kGroupRows * L::kChunks; i += kGroupThreads) {
    const int row = i / L::kChunks;
    const int chunk = i % L::kChunks;
    const std::int32_t from = rows.first_row + group * kGroupRows + row;
    uint4 elements = {0, 0, 0, 0};
    if (from < rows.num_rows) {
      const std::int64_t offset = rows.query_offset(from, kHeadDim, args.shape.n_heads);
      elements = *reinterpret_cast<const uint4*>(args.queries + offset + chunk * kChunkElements);
    }
    *reinterpret_cast<uint4*>(queries + swizzled<L::kQueryPartBytes>(row, chunk)) = elements;
  }
  fence_async_proxy();
  barrier_arrive(ready);
  barrier_wait(ready, 0);
}

// Starts scores = queries * keys^T, unscaled.
template <int kHeadDim>
__device__ __forceinline__ void multiply_keys(Accumulators<Layout<kHeadDim>::kKvTile>& scores,
                                              const unsigned char* queries,
                                              const unsigned char* keys) {
  using L = Layout<kHeadDim>;
  constexpr int kPartSteps = kPartColumns / 16;
  const std::uint32_t a = shared_address(queries);
  const std::uint32_t b = shared_address(keys);
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const auto part = static_cast<std::uint32_t>(step / kPartSteps);
    const auto column = static_cast<std::uint32_t>(step % kPartSteps * 32);  // bytes
    wgmma<L::kKvTile>(
        scores, matrix_descriptor(a + part * L::kQueryPartBytes + column, 16, kEightRows),
        matrix_descriptor(b + part * L::kPartBytes + column, 16, kEightRows), step > 0);
  }
  wgmma_commit();
}

template <int kHeadDim>
using Weights = std::uint32_t[Layout<kHeadDim>::kKvTile / 16][4];

// Starts out += weights * values.
template <int kHeadDim>
__device__ __forceinline__ void multiply_values(Accumulators<kHeadDim>& out,
                                                const Weights<kHeadDim>& weights,
                                                const unsigned char* values) {
  using L = Layout<kHeadDim>;
  const std::uint32_t b = shared_address(values);
#pragma unroll
  for (int step = 0; step < L::kKvTile / 16; ++step) {
    const auto row = static_cast<std::uint32_t>(step * 16 * kRowBytes);
    wgmma<kHeadDim>(out, weights[step], matrix_descriptor(b + row, L::kPartBytes, kEightRows));
  }
  wgmma_commit();
}

// Parts are [part, KV head, head_dim / 8 + 1, thread] of float4: the accumulators of a thread, then
// its two maxima and two sums.
template <int kHeadDim>
__device__ __forceinline__ float4* part_of(const PrefillAttentionArgs& args,
                                           const PrefillParts& parts, std::int32_t part,
                                           std::int32_t kv_head) {
  constexpr std::int64_t kFours = (kHeadDim / 8 + 1) * kGroups * kGroupThreads;
  const std::int64_t index = std::int64_t{part} * args.shape.n_kv_heads + kv_head;
  return reinterpret_cast<float4*>(parts.parts) + index * kFours;
}

template <int kHeadDim>
__device__ __forceinline__ void save_sums(const RowSums<kHeadDim>& sums, float4* part, int thread) {
  part += thread;
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n, part += kGroups * kGroupThreads) {
    *part = {sums.out[n][0], sums.out[n][1], sums.out[n][2], sums.out[n][3]};
  }
  *part = {sums.maximum[0], sums.maximum[1], sums.sum[0], sums.sum[1]};
}

// Adds the sums of a part, whose positions lie before or after those in `sums`. Empty sums change
// nothing on either side, except the sign of a 0.
template <bool kIsPartInFront, int kHeadDim>
__device__ __forceinline__ void add_part(RowSums<kHeadDim>& sums, const float4* part, int thread,
                                         float scale_log2) {
  part += thread;
  const float4 last = part[kHeadDim / 8 * kGroups * kGroupThreads];
  const float part_maximum[2] = {last.x, last.y};
  const float part_sum[2] = {last.z, last.w};
  float factor[2] = {1, 1};
  float part_factor[2] = {1, 1};
  const auto add = [&](float& mine, float parts, int r) {
    mine = kIsPartInFront ? fmaf(mine, factor[r], parts * part_factor[r])
                          : fmaf(parts, part_factor[r], mine * factor[r]);
  };
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float peak = fmaxf(sums.maximum[r], part_maximum[r]);
    const float shift = peak == -INFINITY ? 0.0f : peak;
    factor[r] = exp2_fast((sums.maximum[r] - shift) * scale_log2);
    part_factor[r] = exp2_fast((part_maximum[r] - shift) * scale_log2);
    add(sums.sum[r], part_sum[r], r);
    sums.maximum[r] = peak;
  }
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n, part += kGroups * kGroupThreads) {
    const float4 four = *part;
    add(sums.out[n][0], four.x, 0);
    add(sums.out[n][1], four.y, 0);
    add(sums.out[n][2], four.z, 1);
    add(sums.out[n][3], four.w, 1);
  }
}

// Reports that a warp has read a tile. The tile may be overwritten after all warps have reported.
__device__ __forceinline__ void release(SharedBarrier* empty) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

// Sums over the positions from `position` to `end`. `position` is the start of the CTA's KV tile
// number `tile`. Returns the number of the next tile. `thread` counts the computing threads.
template <int kHeadDim>
__device__ __forceinline__ std::int32_t attend_span(const PrefillAttentionArgs& args,
                                                    const RowTile& rows,
                                                    const Layout<kHeadDim>& shared, int group,
                                                    int thread, std::int32_t position,
                                                    std::int32_t end, std::int32_t tile,
                                                    RowSums<kHeadDim>& sums) {
  constexpr int kKvTile = Layout<kHeadDim>::kKvTile;
  using Turn = Turn<Layout<kHeadDim>::kStages>;
  auto& barriers = shared.barriers();
  const unsigned char* const queries = shared.queries(group);
  const std::int32_t row_positions[2] = {rows.position(lane_row(rows.first_row, thread, 0)),
                                         rows.position(lane_row(rows.first_row, thread, 1))};
  const float scale_log2 = args.shape.scale * kLog2OfE;
  Accumulators<kKvTile> scores;
  Weights<kHeadDim> weights;
  const auto pack = [&] {
#pragma unroll
    for (int step = 0; step < kKvTile / 16; ++step) pack_weights(weights[step], scores, step);
  };

  Turn turn(tile++);
  barrier_wait(&barriers.keys_full[turn.stage], turn.parity);
  wgmma_fence(scores);
  multiply_keys<kHeadDim>(scores, queries, shared.keys(turn.stage));
  wgmma_wait<0>(scores);
  release(&barriers.keys_empty[turn.stage]);
  mask(scores, position, row_positions, args.shape.window);
  sums.weigh(scores, scale_log2);  // nothing to correct yet
  pack();
#pragma unroll 1
  for (position += kKvTile; position < end; position += kKvTile) {
    const Turn last = turn;
    turn = Turn(tile++);
    barrier_wait(&barriers.keys_full[turn.stage], turn.parity);
    wgmma_fence(scores, weights, sums.out);
    multiply_keys<kHeadDim>(scores, queries, shared.keys(turn.stage));
    barrier_wait(&barriers.values_full[last.stage], last.parity);
    wgmma_fence();
    multiply_values<kHeadDim>(sums.out, weights, shared.values(last.stage));
    wgmma_wait<1>(scores);
    release(&barriers.keys_empty[turn.stage]);
    mask(scores, position, row_positions, args.shape.window);
    sums.weigh(scores, scale_log2);
    settle(sums.sum[0] + sums.sum[1], &barriers);
    wgmma_wait<0>(sums.out, weights);
    release(&barriers.values_empty[last.stage]);
    sums.correct();
    pack();
  }
  barrier_wait(&barriers.values_full[turn.stage], turn.parity);
  wgmma_fence(weights, sums.out);
  multiply_values<kHeadDim>(sums.out, weights, shared.values(turn.stage));
  wgmma_wait<0>(sums.out, weights);
  release(&barriers.values_empty[turn.stage]);
  return tile;
}

// The warpgroup of a computing thread. uniform_group() tells the compiler that it is uniform in a
// warp. With head_dim 256, where registers are short, it stays an ordinary value of the thread.
template <int kHeadDim>
__device__ __forceinline__ int group_of(int thread) {
  return kHeadDim == 256 ? thread / kGroupThreads : uniform_group(thread);
}

// The work of a computing warpgroup. `part` receives the sums of all spans but the last. If the CTA
// has one span only, it receives that one.
template <int kHeadDim>
__device__ __forceinline__ void attend(const PrefillAttentionArgs& args, const RowTile& rows,
                                       const PrefillParts& parts, bool has_one_span, float4* part,
                                       const Layout<kHeadDim>& shared) {
  const int thread = static_cast<int>(threadIdx.x) - kGroupThreads;  // of the computing threads
  const int group = group_of<kHeadDim>(thread);
  load_queries<kHeadDim>(args, rows, group, thread % kGroupThreads, shared.queries(group),
                         &shared.barriers().queries[group]);
  std::int32_t begin = first_tile_position<kHeadDim>(rows);
  std::int32_t tile = 0;
  RowSums<kHeadDim> sums;
#pragma unroll 1
  for (bool is_first = true;; is_first = false) {
    const std::int32_t end = min(rows.kv_end, (begin / parts.span_size + 1) * parts.span_size);
    tile = attend_span<kHeadDim>(args, rows, shared, group, thread, begin, end, tile, sums);
    if (!is_first) add_part<true>(sums, part, thread, args.shape.scale * kLog2OfE);
    if (end == rows.kv_end) break;
    save_sums<kHeadDim>(sums, part, thread);
    sums = RowSums<kHeadDim>();
    begin = end;
  }
  if (has_one_span) {
    save_sums<kHeadDim>(sums, part, thread);
  } else {
    store_rows<kHeadDim>(args, rows, sums, thread);
  }
}

template <int kHeadDim>
__device__ __forceinline__ void init_barriers(const Layout<kHeadDim>& shared) {
  constexpr std::uint32_t kWarps = kGroups * kGroupThreads / 32;
  auto& barriers = shared.barriers();
  for (int stage = 0; stage < Layout<kHeadDim>::kStages; ++stage) {
    barrier_init(&barriers.keys_full[stage], 1);
    barrier_init(&barriers.values_full[stage], 1);
    barrier_init(&barriers.keys_empty[stage], kWarps);
    barrier_init(&barriers.values_empty[stage], kWarps);
  }
  for (SharedBarrier& barrier : barriers.queries) barrier_init(&barrier, kGroupThreads);
  barrier_init_done();
}

// The work of all threads of a CTA.
template <int kHeadDim>
__device__ __forceinline__ void attend_tile(const PrefillAttentionArgs& args,
                                            const PrefillParts& parts, const KvTensors& tensors) {
  const Layout<kHeadDim> shared{swizzled_shared_memory()};
  RowTile rows = row_tile<kWgmmaTileRows>(args);
  if (rows.num_rows == 0) return;  // padding
  const PrefillTile tile = args.tiles[tile_of_cta(args)];
  const bool has_one_span = tile.span >= 0;
  if (has_one_span) {
    rows.kv_begin = max(rows.kv_begin, tile.span * parts.span_size);
    rows.kv_end = min(rows.kv_end, (tile.span + 1) * parts.span_size);
  }
  if (threadIdx.x == 0) init_barriers(shared);
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    decrease_registers<kLoaderRegisters>();
    if (threadIdx.x < 32) {
      load_tiles<false>(args, tensors, rows, shared);
    } else if (threadIdx.x < 64) {
      load_tiles<true>(args, tensors, rows, shared);
    }
  } else {
    increase_registers<kComputeRegisters>();
    float4* const part =
        part_of<kHeadDim>(args, parts, has_one_span ? tile.part : tile_of_cta(args), rows.kv_head);
    attend(args, rows, parts, has_one_span, part, shared);
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_attention_kernel(const PrefillAttentionArgs args, const PrefillParts parts,
                           const __grid_constant__ KvTensors tensors) {
  join_kernels();
  if constexpr (kHasWgmma) {
    attend_tile<kHeadDim>(args, parts, tensors);
  } else {
    __trap();  // the host never launches this
  }
}

// One CTA for every merge and KV head. Its threads match those that computed the parts.
template <int kHeadDim>
__global__ void __launch_bounds__(kGroups* kGroupThreads)
    merge_parts_kernel(const PrefillAttentionArgs args, const PrefillParts parts) {
  join_kernels();
  const auto cta = static_cast<std::int32_t>(blockIdx.x);
  const PrefillMerge merge = parts.merges[cta / args.shape.n_kv_heads];
  const std::int32_t kv_head = cta % args.shape.n_kv_heads;
  const int thread = static_cast<int>(threadIdx.x);
  RowSums<kHeadDim> sums;  // over nothing
#pragma unroll 1
  for (std::int32_t i = 0; i < merge.num_parts; ++i) {
    const float4* const part = part_of<kHeadDim>(args, parts, merge.first_part + i, kv_head);
    add_part<false>(sums, part, thread, args.shape.scale * kLog2OfE);
  }
  const RowTile rows = row_tile<kWgmmaTileRows>(args, merge.sequence, merge.first_row, kv_head);
  store_rows<kHeadDim>(args, rows, sums, thread);
}

template <int kHeadDim>
void launch_of(const PrefillAttentionArgs& args, const PrefillParts& parts,
               const KvTensors& tensors, cudaStream_t stream) {
  METRONOME_CHECK(parts.span_size > 0 && parts.span_size % wgmma_kv_tile(kHeadDim) == 0,
                  "a span is made of whole KV tiles");
  const auto num_ctas = [&args](std::int32_t count) {
    return dim3(static_cast<unsigned>(std::int64_t{count} * args.shape.n_kv_heads));
  };
  launch(wgmma_attention_kernel<kHeadDim>,
         {num_ctas(args.num_tiles), dim3(kThreads), Layout<kHeadDim>::kSharedBytes}, stream, args,
         parts, tensors);
  launch(merge_parts_kernel<kHeadDim>, {num_ctas(parts.num_merges), dim3(kGroups * kGroupThreads)},
         stream, args, parts);
}

}  // namespace

std::int64_t prefill_part_floats(const AttentionShape& shape) {
  return std::int64_t{shape.head_dim / 8 + 1} * kGroups * kGroupThreads * 4 * shape.n_kv_heads;
}

void launch_wgmma_attention(const PrefillAttentionArgs& args, const PrefillParts& parts,
                            const KvTensors& tensors, cudaStream_t stream) {
  switch (args.shape.head_dim) {
    case 64: launch_of<64>(args, parts, tensors, stream); break;
    case 128: launch_of<128>(args, parts, tensors, stream); break;
    case 256: launch_of<256>(args, parts, tensors, stream); break;
    default: METRONOME_CHECK(false, "head_dim must be 64, 128 or 256");
  }
}

}  // namespace metronome
