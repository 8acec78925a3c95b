// SPDX-License-Identifier: Apache-2.0
// Linear layers of many tokens on Hopper.
// A CTA computes tiles of 64 or 128 tokens and up to 256 rows of weights, one after another. One or
// two warpgroups compute 64 tokens each. One thread of another loads inputs and weights to shared
// memory through the bulk copy engine, 64 of k per stage. It continues with the next tile while the
// sums of the last one are stored. Sums go through shared memory to the copy engine, 64 columns of
// a warp's 16 tokens at a time. For Add, the old outputs are loaded the same way. Columns of a tile
// beyond a multiple of 64 are stored from registers. Two CTAs with consecutive tiles of tokens may
// form a cluster: each loads half of the weights for both. Weights are always loaded in two halves.
// With gates, one half is gates and the other ups, so a thread has both sums of an output.
//
// An accumulator runs over k in order, by wgmma of 16 at a time: the bits are the same in tiles of
// every width.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/base/types.h"
#include "gpu/kernels/common/gate.cuh"
#include "gpu/kernels/common/hopper_ptx.h"
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/common/vector.cuh"
#include "gpu/kernels/common/warpgroups.cuh"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/launch.h"
#include "gpu/kernels/tensor_map.h"

#ifdef __CUDACC__
#pragma nv_diag_suppress 177  // on targets without wgmma, which use little of this file
#endif

namespace metronome {

namespace {

constexpr int kStep = 64;  // of k, per stage
constexpr int kWarpRows = 16;
constexpr int kPartOutputs = 64;
constexpr int kPartBytes = kWarpRows * kRowBytes;
// Tiles that are computed at the same time have at most this many tokens. Then their inputs fit the
// L2 cache, so inputs are read from memory once, as weights are.
constexpr std::int32_t kBandRows = 2048;

// Tensor maps of a launch.
struct Tensors {
  CUtensorMap x;  // in boxes of a tile's rows
  CUtensorMap w;  // in boxes of half of a tile's columns
  CUtensorMap y;  // in boxes of a warp's rows
};

template <int kStages, int kWarps>
struct TileBarriers {
  SharedBarrier full[kStages];
  SharedBarrier empty[kStages];
  SharedBarrier before[kWarps];  // loads of the outputs' old values
};

// A kind of tile. Shared memory holds stages of inputs and weights, parts of outputs, and barriers.
template <int kTileRows, int kTileColumns, bool kHasGates>
struct Layout {
  static constexpr int kRows = kTileRows;
  static constexpr int kColumns = kTileColumns;
  static constexpr bool kIsGated = kHasGates;
  static constexpr int kOutputs = kIsGated ? kColumns / 2 : kColumns;  // of a token
  static constexpr int kGroups = kRows / kGroupRows;                   // computing warpgroups
  static constexpr int kThreads = (1 + kGroups) * kGroupThreads;
  static constexpr int kWarps = kGroups * kGroupThreads / kWarpSize;  // computing warps
  static constexpr int kHalf = kColumns / 2;
  static constexpr int kInputBytes = kRows * kRowBytes;
  static constexpr int kHalfBytes = kHalf * kRowBytes;
  static constexpr int kStageBytes = kInputBytes + 2 * kHalfBytes;
  static constexpr int kBarrierBytes = 512;
  // Outputs are stored in parts of 64. kStagedParts of them fit shared memory at a time.
  static constexpr int kParts = kOutputs / kPartOutputs;
  static constexpr int kStagedParts = kParts <= 3 ? kParts : kParts / 2;
  static constexpr int kStagedBytes = kStagedParts * kPartBytes;  // per warp
  static constexpr int kStages =
      (kMaxSharedBytes - kBarrierBytes - kWarps * kStagedBytes) / kStageBytes;
  using Sums = float[kColumns / kVectorSize][4];  // a thread's sums of a tile, as wgmma has them
  using Barriers = TileBarriers<kStages, kWarps>;
  static constexpr int kStaged = kStages * kStageBytes;
  static constexpr int kBarriers = kStaged + kWarps * kStagedBytes;
  static constexpr int kSharedBytes = kBarriers + kBarrierBytes;
  static_assert(has_product(kColumns));
  static_assert(kHalfBytes % 1024 == 0, "the swizzle is made of eight rows");
  static_assert(kParts % std::max(kStagedParts, 1) == 0);
  static_assert(sizeof(Barriers) <= kBarrierBytes);

  unsigned char* memory;

  __device__ __forceinline__ unsigned char* inputs(int stage) const {
    return memory + stage * kStageBytes;
  }
  __device__ __forceinline__ unsigned char* weights(int stage) const {
    return memory + stage * kStageBytes + kInputBytes;
  }
  __device__ __forceinline__ unsigned char* staged(int warp) const {
    return memory + kStaged + warp * kStagedBytes;
  }
  __device__ __forceinline__ Barriers& barriers() const {
    return *reinterpret_cast<Barriers*>(memory + kBarriers);
  }
  __device__ __forceinline__ SharedBarrier* full(int stage) const {
    return &barriers().full[stage];
  }
  __device__ __forceinline__ SharedBarrier* empty(int stage) const {
    return &barriers().empty[stage];
  }
};

// The first token and the first output of a tile.
struct Place {
  std::int32_t token;
  std::int32_t output;
};

// The current stage, and the parity of the phases of its barriers.
template <int kStages>
struct Turn {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1u;
  }
};

// The tiles of this CTA in sequence. Both CTAs of a cluster have the same number.
template <class L>
class Tiles {
 public:
  __device__ __forceinline__ Tiles(const PrefillGemmArgs& args, std::uint32_t rank)
      : rank_(static_cast<std::int32_t>(rank)),
        cluster_(args.tile.cluster),
        down_(whole(whole(args.num_tokens, L::kRows), cluster_)),
        across_(whole(args.n, L::kOutputs)),
        index_(static_cast<std::int32_t>(blockIdx.x) / cluster_),
        stride_(static_cast<std::int32_t>(gridDim.x) / cluster_) {}

  __device__ __forceinline__ bool has_tile() const { return index_ < down_ * across_; }
  __device__ __forceinline__ void advance() { index_ += stride_; }

  // The start of the current tile. Consecutive tiles follow each other along tokens, within a band
  // of kBandRows tokens.
  __device__ __forceinline__ Place place() const {
    const std::int32_t band = kBandRows / L::kRows / cluster_;
    const std::int32_t first = index_ / (band * across_) * band;
    const std::int32_t height = min(band, down_ - first);
    const std::int32_t rest = index_ - first * across_;
    const std::int32_t row = (first + rest % height) * cluster_ + rank_;
    return {row * L::kRows, rest / height * L::kOutputs};
  }

 private:
  __device__ static __forceinline__ std::int32_t whole(std::int32_t a, std::int32_t b) {
    return (a + b - 1) / b;
  }

  std::int32_t rank_;
  std::int32_t cluster_;
  std::int32_t down_;    // along tokens, in tiles of a cluster
  std::int32_t across_;  // along outputs, in tiles
  std::int32_t index_;
  std::int32_t stride_;
};

// Starts the copies of a stage's weights: both halves, or in a cluster this CTA's half to both
// CTAs. `k` is the first of the stage.
template <class L>
__device__ __forceinline__ void start_weights(const PrefillGemmArgs& args, const Tensors& tensors,
                                              const L& shared, std::uint32_t rank,
                                              std::int32_t output, std::int32_t k, int stage) {
  const std::int32_t to_ups = L::kIsGated ? args.n : L::kHalf;
  unsigned char* const to = shared.weights(stage);
  SharedBarrier* const full = shared.full(stage);
  barrier_arrive_expecting(full, L::kStageBytes);
  if (args.tile.cluster > 1) {
    constexpr std::uint16_t kBoth = 3;
    const auto half = static_cast<std::int32_t>(rank);
    copy_box_to(kBoth, to + half * L::kHalfBytes, tensors.w, k, output + half * to_ups, full);
  } else {
    copy_box(to, tensors.w, k, output, full);
    copy_box(to + L::kHalfBytes, tensors.w, k, output + to_ups, full);
  }
}

// The work of the loading thread. It requests the first weights before the earlier kernels have
// ended.
template <class L>
__device__ __forceinline__ void load_tiles(const PrefillGemmArgs& args, const Tensors& tensors,
                                           const L& shared, std::uint32_t rank) {
  Tiles<L> tiles(args, rank);
  const std::int32_t first_output = tiles.place().output;
  int ahead = 0;  // stages whose weights are requested, but not their inputs
  for (std::int32_t k = 0; ahead < L::kStages && k < args.k; ++ahead, k += kStep) {
    start_weights(args, tensors, shared, rank, first_output, k, ahead);
  }
  wait_for_kernels();
  Turn<L::kStages> turn;
#pragma unroll 1
  for (; tiles.has_tile(); tiles.advance()) {
    const Place place = tiles.place();
#pragma unroll 1
    for (std::int32_t k = 0; k < args.k; k += kStep) {
      if (ahead > 0) {
        --ahead;
      } else {
        barrier_wait(shared.empty(turn.stage), turn.parity ^ 1u);
        start_weights(args, tensors, shared, rank, place.output, k, turn.stage);
      }
      copy_box(shared.inputs(turn.stage), tensors.x, k, place.token, shared.full(turn.stage));
      turn.advance();
    }
  }
  // Other CTAs' copies to this CTA's shared memory must be complete before it ends. The arrivals at
  // `empty` show it: all warps of the cluster have read what this CTA received and sent.
#pragma unroll 1
  for (int stage = 0; stage < L::kStages; ++stage) {
    barrier_wait(shared.empty(turn.stage), turn.parity ^ 1u);
    turn.advance();
  }
}

// Reports that a warp has read a stage. The stage may be overwritten after all warps that it was
// loaded for have reported.
__device__ __forceinline__ void release(SharedBarrier* empty, std::int32_t cluster) {
  __syncwarp();
  const unsigned lane = threadIdx.x % kWarpSize;
  if (lane < static_cast<unsigned>(cluster)) barrier_arrive_at(empty, lane);
}

// Sums a warpgroup's part of a tile over all k.
template <class L>
__device__ __forceinline__ void multiply_tile(const PrefillGemmArgs& args, const L& shared,
                                              int group, Turn<L::kStages>& turn,
                                              typename L::Sums& sums) {
  int last = -1;  // the stage of the previous products
#pragma unroll 1
  for (std::int32_t k = 0; k < args.k; k += kStep) {
    barrier_wait(shared.full(turn.stage), turn.parity);
    const std::uint32_t a =
        shared_address(shared.inputs(turn.stage) + group * kGroupRows * kRowBytes);
    const std::uint32_t b = shared_address(shared.weights(turn.stage));
    wgmma_fence(sums);
#pragma unroll
    for (std::uint32_t i = 0; i < kStep / 16; ++i) {
      wgmma<L::kColumns>(sums, matrix_descriptor(a + i * 32, 16, kEightRows),
                         matrix_descriptor(b + i * 32, 16, kEightRows), k > 0 || i > 0);
    }
    wgmma_commit();
    if (last >= 0) {
      wgmma_wait<1>();
      release(shared.empty(last), args.tile.cluster);
    }
    last = turn.stage;
    turn.advance();
  }
  wgmma_wait<0>(sums);
  release(shared.empty(last), args.tile.cluster);
}

// Transposes a 4 x 4 matrix of pairs over the four lanes of a row; its own inverse. Before, each
// lane has two columns of each of four groups of eight. Afterwards, lane i has all of group i.
__device__ __forceinline__ void exchange(std::uint32_t (&pairs)[4]) {
  const bool is_odd = threadIdx.x % 2 != 0;
  const bool is_high = threadIdx.x % 4 >= 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(kFullWarp, is_odd ? pairs[i] : pairs[i + 1], 1);
    (is_odd ? pairs[i] : pairs[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(kFullWarp, is_high ? pairs[i] : pairs[i + 2], 2);
    (is_high ? pairs[i] : pairs[i + 2]) = got;
  }
}

__device__ __forceinline__ std::uint32_t rounded(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  std::memcpy(&bits, &pair, sizeof bits);
  return bits;
}
__device__ __forceinline__ float low_of(std::uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_of(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

__device__ __forceinline__ float activation(GemmEpilogue epilogue, float x) {
  return epilogue == GemmEpilogue::Gelu ? gate<true>(x) : gate<false>(x);
}

// Two adjacent outputs of a row from elements `i` and `i` + 1 of `sums`. Uses `ups` with gates, or
// the old outputs in `before` with Add. Rounds in pairs, which is one instruction.
template <bool kIsGated>
__device__ __forceinline__ std::uint32_t outputs_of(GemmEpilogue epilogue, const float (&sums)[4],
                                                    const float (&ups)[4], int i,
                                                    std::uint32_t before) {
  if constexpr (kIsGated) {
    const std::uint32_t gates = rounded(sums[i], sums[i + 1]);
    const std::uint32_t factors = rounded(ups[i], ups[i + 1]);
    return rounded(activation(epilogue, low_of(gates)) * low_of(factors),
                   activation(epilogue, high_of(gates)) * high_of(factors));
  }
  if (epilogue == GemmEpilogue::Add) {
    return rounded(low_of(before) + sums[i], high_of(before) + sums[i + 1]);
  }
  return rounded(sums[i], sums[i + 1]);
}

// Stores the sums of a computing thread's tiles.
template <class L>
class Outputs {
 public:
  // `thread` counts the computing threads.
  __device__ __forceinline__ Outputs(const PrefillGemmArgs& args, const Tensors& tensors,
                                     const L& shared, int thread)
      : args_(args),
        tensors_(tensors),
        lane_(thread % kWarpSize),
        first_row_(thread / kWarpSize * kWarpRows),
        staged_(shared.staged(thread / kWarpSize)),
        before_(&shared.barriers().before[thread / kWarpSize]) {}

  // Called before the tile's sums are computed.
  __device__ __forceinline__ void begin(const Place& place) {
    place_ = {place.token + first_row_, place.output};
    if (L::kParts > 0 && adds()) ask_before(0);
  }

  __device__ __forceinline__ void finish(const typename L::Sums& sums) {
    if constexpr (L::kParts > 0) {
#pragma unroll
      for (int first = 0; first < L::kParts; first += L::kStagedParts) store_parts(first, sums);
    }
    if constexpr (kRest > 0) store_rest(sums);
  }

  // Called before the thread ends, because the copy engine still reads shared memory.
  __device__ __forceinline__ void wait_until_stored() {
    if (L::kParts > 0 && lane_ == 0) stores_wait_read();
  }

 private:
  static constexpr int kPartVectors = kPartOutputs / kVectorSize;
  static constexpr int kPartedVectors = L::kParts * kPartVectors;  // of a row
  static constexpr int kRest = L::kOutputs / kVectorSize - kPartedVectors;
  static constexpr int kUps = L::kIsGated ? L::kOutputs / kVectorSize : 0;

  __device__ __forceinline__ bool adds() const {
    return !L::kIsGated && args_.epilogue == GemmEpilogue::Add;
  }

  __device__ __forceinline__ std::uint32_t outputs(const typename L::Sums& sums, int vector, int r,
                                                   std::uint32_t before) const {
    return outputs_of<L::kIsGated>(args_.epilogue, sums[vector], sums[vector + kUps], 2 * r,
                                   before);
  }

  // Requests the old outputs of the staged parts from `first` on. They go to the same shared memory
  // as the parts before, after those have been read.
  __device__ __forceinline__ void ask_before(int first) {
    if (lane_ != 0) return;
    stores_wait_read();
    barrier_arrive_expecting(before_, L::kStagedBytes);
#pragma unroll
    for (int part = 0; part < L::kStagedParts; ++part) {
      copy_box(staged_ + part * kPartBytes, tensors_.y,
               place_.output + (first + part) * kPartOutputs, place_.token, before_);
    }
  }

  __device__ __forceinline__ void store_parts(int first, const typename L::Sums& sums) {
    if (adds()) {
      if (first > 0) ask_before(first);
      barrier_wait(before_, parity_);
      parity_ ^= 1u;
    } else {
      if (lane_ == 0) stores_wait_read();
      __syncwarp();
    }
#pragma unroll
    for (int part = 0; part < L::kStagedParts; ++part) {
      fill_part(staged_ + part * kPartBytes, (first + part) * kPartVectors, sums);
    }
    fence_async_proxy();
    __syncwarp();
    if (lane_ != 0) return;
#pragma unroll
    for (int part = 0; part < L::kStagedParts; ++part) {
      store_box(tensors_.y, place_.output + (first + part) * kPartOutputs, place_.token,
                staged_ + part * kPartBytes);
    }
    stores_commit();
  }

  // Writes the outputs from vector `first` of a row on. Rows are swizzled like boxes, so the lanes
  // of an instruction access all banks.
  __device__ __forceinline__ void fill_part(unsigned char* part, int first,
                                            const typename L::Sums& sums) const {
    const auto pair_at = [&](int vector, int r) -> std::uint32_t& {
      const int row = lane_ / 4 + 8 * r;
      const int chunk = vector ^ lane_ / 4;
      return *reinterpret_cast<std::uint32_t*>(part + row * kRowBytes + chunk * 16 + lane_ % 4 * 4);
    };
    std::uint32_t pairs[kPartVectors][2] = {};
    if (adds()) {
#pragma unroll
      for (int i = 0; i < 2 * kPartVectors; ++i) pairs[i / 2][i % 2] = pair_at(i / 2, i % 2);
    }
#pragma unroll
    for (int i = 0; i < 2 * kPartVectors; ++i) {
      pair_at(i / 2, i % 2) = outputs(sums, first + i / 2, i % 2, pairs[i / 2][i % 2]);
    }
  }

  // Stores the vectors after the last part, at most seven per row.
  __device__ __forceinline__ void store_rest(const typename L::Sums& sums) {
    constexpr int kFours = (kRest + 3) / 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int32_t token = place_.token + lane_ / 4 + 8 * r;
      const std::int32_t output = place_.output + kPartedVectors * kVectorSize;
      bf16* const row = args_.y + std::int64_t{token} * args_.n + output;
      const auto is_there = [&](int vector) {
        return vector < kRest && output + vector * kVectorSize < args_.n &&
               token < args_.num_tokens;
      };
      std::uint32_t pairs[kFours][4] = {};
      // Requests all loads of a row before it uses the first.
      if (adds()) {
#pragma unroll
        for (int four = 0; four < kFours; ++four) {
          const int vector = four * 4 + lane_ % 4;
          if (!is_there(vector)) continue;
          const uint4 before = load_vector(row, vector);
          pairs[four][0] = before.x, pairs[four][1] = before.y;
          pairs[four][2] = before.z, pairs[four][3] = before.w;
        }
#pragma unroll
        for (int four = 0; four < kFours; ++four) exchange(pairs[four]);
      }
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
#pragma unroll
        for (int i = 0; i < 4 && four * 4 + i < kRest; ++i) {
          pairs[four][i] = outputs(sums, kPartedVectors + four * 4 + i, r, pairs[four][i]);
        }
        exchange(pairs[four]);
        const int vector = four * 4 + lane_ % 4;
        if (!is_there(vector)) continue;
        store_vector(row, vector,
                     make_uint4(pairs[four][0], pairs[four][1], pairs[four][2], pairs[four][3]));
      }
    }
  }

  const PrefillGemmArgs& args_;
  const Tensors& tensors_;
  int lane_;
  std::int32_t first_row_;  // first row of the warp in a tile
  unsigned char* staged_;
  SharedBarrier* before_;
  std::uint32_t parity_ = 0;  // of before_
  Place place_ = {};          // of the warp's rows
};

template <class L>
__device__ __forceinline__ void init_barriers(const L& shared, std::int32_t cluster) {
  for (int stage = 0; stage < L::kStages; ++stage) {
    barrier_init(shared.full(stage), 1);
    barrier_init(shared.empty(stage), static_cast<std::uint32_t>(cluster * L::kWarps));
  }
  for (SharedBarrier& barrier : shared.barriers().before) barrier_init(&barrier, 1);
  barrier_init_done();
}

// The work of the computing threads. `thread` counts them.
template <class L>
__device__ __forceinline__ void compute_tiles(const PrefillGemmArgs& args, const Tensors& tensors,
                                              const L& shared, std::uint32_t rank, int thread) {
  const int group = uniform_group(thread);
  Turn<L::kStages> turn;
  typename L::Sums sums;
  Outputs<L> outputs(args, tensors, shared, thread);
#pragma unroll 1
  for (Tiles<L> tiles(args, rank); tiles.has_tile(); tiles.advance()) {
    const Place place = tiles.place();  // no divisions between products and stores
    outputs.begin(place);
    multiply_tile(args, shared, group, turn, sums);
    outputs.finish(sums);
  }
  outputs.wait_until_stored();
}

// The work of all threads of a CTA.
template <class L>
__device__ __forceinline__ void multiply(const PrefillGemmArgs& args, const Tensors& tensors) {
  const L shared{swizzled_shared_memory()};
  const bool has_neighbour = args.tile.cluster > 1;
  const std::uint32_t rank = has_neighbour ? cluster_rank() : 0;
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    prefetch_tensor(tensors.w);
    prefetch_tensor(tensors.x);
    if (L::kParts > 0) prefetch_tensor(tensors.y);
    init_barriers(shared, args.tile.cluster);
  }
  if (has_neighbour) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < kGroupThreads) {
    if constexpr (L::kGroups > 1) decrease_registers<kLoaderRegisters>();
    if (threadIdx.x == 0) {
      load_tiles(args, tensors, shared, rank);
    } else {
      wait_for_kernels();
    }
    __syncwarp();
  } else {
    if constexpr (L::kGroups > 1) increase_registers<kComputeRegisters>();
    wait_for_kernels();
    compute_tiles(args, tensors, shared, rank, static_cast<int>(threadIdx.x) - kGroupThreads);
  }
}

template <class L>
__global__ void __launch_bounds__(L::kThreads, 1)
    prefill_gemm_kernel(const PrefillGemmArgs args, const __grid_constant__ Tensors tensors) {
  if constexpr (kHasWgmma) {
    multiply<L>(args, tensors);
  } else {
    __trap();  // the host never launches this
  }
}

template <class L>
void launch_tiles(const PrefillGemmArgs& args, cudaStream_t stream) {
  const std::int32_t cluster = args.tile.cluster;
  const Tensors tensors = {
      .x = row_tensor(args.x, args.num_tokens, args.k, L::kRows),
      .w = row_tensor(args.w, std::int64_t{args.n} * (L::kIsGated ? 2 : 1), args.k, L::kHalf),
      .y = row_tensor(args.y, args.num_tokens, args.n, kWarpRows)};
  const std::int64_t down = ceil_div(ceil_div(args.num_tokens, L::kRows), cluster);
  const std::int64_t across = ceil_div(args.n, L::kOutputs);
  const std::int64_t clusters = std::min<std::int64_t>(down * across, args.num_ctas / cluster);
  launch(prefill_gemm_kernel<L>,
         {dim3(static_cast<unsigned>(clusters * cluster)), dim3(L::kThreads), L::kSharedBytes,
          static_cast<unsigned>(cluster)},
         stream, args, tensors);
}

// Launches the tiles with these columns; false if they are not supported.
template <int kRows, bool kIsGated, std::size_t... kIndices>
bool launch_columns(const PrefillGemmArgs& args, cudaStream_t stream,
                    std::index_sequence<kIndices...>) {
  const auto launch_if = [&](auto columns) {
    if (args.tile.columns != columns()) return false;
    launch_tiles<Layout<kRows, columns(), kIsGated>>(args, stream);
    return true;
  };
  return (launch_if(std::integral_constant<int, kPrefillGemmColumns[kIndices]>()) || ...);
}

template <bool kIsGated>
void launch_rows(const PrefillGemmArgs& args, cudaStream_t stream) {
  constexpr std::make_index_sequence<kPrefillGemmColumns.size()> kColumns;
  bool has_tile = false;
  if (args.tile.rows == 64) has_tile = launch_columns<64, kIsGated>(args, stream, kColumns);
  if (args.tile.rows == 128) has_tile = launch_columns<128, kIsGated>(args, stream, kColumns);
  METRONOME_CHECK(has_tile, "tiles are of kPrefillGemmRows and kPrefillGemmColumns");
}

}  // namespace

void launch_prefill_gemm(const PrefillGemmArgs& args, cudaStream_t stream) {
  if (args.num_tokens == 0) return;
  METRONOME_CHECK(args.epilogue != GemmEpilogue::StoreFloat, "sums of prompts are stored as bf16");
  METRONOME_CHECK(args.n % 8 == 0 && args.k % 8 == 0 && args.k > 0, "rows of 16 bytes");
  METRONOME_CHECK(1 <= args.tile.cluster && args.tile.cluster <= 2, "clusters of one or two CTAs");
  METRONOME_CHECK(args.num_ctas >= args.tile.cluster, "a CTA at least, or a cluster");
  if (has_gates(args.epilogue)) {
    launch_rows<true>(args, stream);
  } else {
    launch_rows<false>(args, stream);
  }
}

}  // namespace metronome
