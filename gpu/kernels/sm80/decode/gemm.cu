// SPDX-License-Identifier: Apache-2.0
// Linear layers of few tokens, with the norm before and the activation after them. Reading the
// weights once decides the time, so the kernel keeps enough loads in flight. There is one CTA per
// SM. It requests the first weights before it waits for earlier kernels, and more whenever it has
// used some.
#include <algorithm>

#include "gpu/kernels/common/gate.cuh"
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/common/vector.cuh"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/launch.h"

namespace metronome {
namespace {

constexpr int kThreads = 256;
// CTAs that fit an SM. The second one is for the next kernel: if that is a decode GEMM, too, it
// loads its first weights while this one ends.
constexpr int kBlocksPerProcessor = 2;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kMaxTokens = 16;
constexpr std::int64_t kMaxInputs = 1 << 20;  // far more than fits shared memory
constexpr int kTileRows = 8;                  // of w in an mma
constexpr int kTiles = 2;                     // in parallel: 16 rows of w, or 8 gates and their ups
constexpr int kUnit = 32;  // inputs in a copy of a warp: 16 bytes a lane, 4 lanes a row, 8 rows
constexpr int kUnits = 2;  // per batch
// Batches of a warp in flight, 2 KB each. A CTA then has 80 KB of weights in flight, or 48 KB if
// the inputs leave less room. 4.3 TB/s times 0.8 us are 26 KB for each of 132 SMs.
constexpr int kManyStages = 5;
constexpr int kFewStages = 3;
// Further batches of each warp to prefetch, so that memory stays busy while the inputs are loaded
// and normalised.
constexpr int kPrefetchedBatches = 6;

constexpr int kVectorBytes = 16;
constexpr int kUnitBytes = kUnit * 2;
constexpr int kBatchBytes = kTiles * kUnits * kWarpSize * kVectorBytes;

// Byte offsets in shared memory; inputs are at 0. The stride of input rows allows 64 bytes each of
// two neighbouring rows to be read without a bank conflict.
struct Layout {
  int stride = 0;         // of a row of inputs
  int update = 0;         // rows like the inputs, if there is an update
  int norm_weight = 0;    // [k] bf16, if there is one
  int post_weight = 0;    // [k] bf16, if there is one
  int row_sums = 0;       // float [2, kMaxTokens, kWarps]
  int partials = 0;       // float [2, kWarps, kTiles, 8 or 16 tokens, kTileRows]
  int batches = 0;        // [kWarps, stages, kTiles, kUnits, kWarpSize] vectors
  std::int64_t size = 0;  // without the batches
};

__host__ __device__ inline Layout layout_of(const DecodeGemmArgs& args) {
  Layout layout;
  layout.stride = ((args.k + kUnit - 1) / kUnit * kUnitBytes + 63) / 128 * 128 + 64;
  const int tile_tokens = args.num_tokens > 8 ? 16 : 8;
  const bool has_update = args.update != nullptr;
  layout.update = args.num_tokens * layout.stride;
  layout.norm_weight = layout.update + (has_update ? layout.update : 0);
  layout.post_weight = layout.norm_weight + (args.norm_weight != nullptr ? layout.stride : 0);
  layout.row_sums = layout.post_weight + (has_update ? layout.stride : 0);
  layout.partials = layout.row_sums + 2 * kMaxTokens * kWarps * 4;
  layout.batches = layout.partials + 2 * kWarps * kTiles * tile_tokens * kTileRows * 4;
  layout.size = layout.batches;
  return layout;
}

// A CTA's part of the result: outputs [begin, end), computed in groups of group_size. A group has
// at most kTiles * kTileRows rows of w.
struct Share {
  int begin = 0;
  int end = 0;
  int group_size = 0;
  int num_groups = 0;

  __device__ __forceinline__ int group_begin(int group) const { return begin + group * group_size; }
  __device__ __forceinline__ int group_end(int group) const {
    return min(end, group_begin(group) + group_size);
  }
};

template <bool kIsGated>
__device__ __forceinline__ Share share_of(std::int32_t n) {
  constexpr int kMaxGroup = kIsGated ? kTileRows : kTiles * kTileRows;
  const std::int64_t block = blockIdx.x;
  const std::int64_t num_blocks = gridDim.x;
  Share share;
  share.begin = static_cast<int>(n * block / num_blocks);
  share.end = static_cast<int>(n * (block + 1) / num_blocks);
  const int size = share.end - share.begin;
  share.num_groups = (size + kMaxGroup - 1) / kMaxGroup;
  share.group_size = (size + share.num_groups - 1) / share.num_groups;
  return share;
}

// A warp's part of the sums, which depends on k alone: units [begin, end) of every row, in batches.
// All warps have the same number of batches.
struct Range {
  int begin = 0;
  int end = 0;
  int num_batches = 0;
};

__device__ __forceinline__ Range range_of(std::int32_t k, int warp) {
  const int num_units = (k + kUnit - 1) / kUnit;
  const int most = (num_units + kWarps - 1) / kWarps;
  return {num_units * warp / kWarps, num_units * (warp + 1) / kWarps, (most + kUnits - 1) / kUnits};
}

// A position in the order of a warp's weights.
struct Place {
  int group = 0;
  int batch = 0;

  __device__ __forceinline__ void advance(int num_batches) {
    if (++batch < num_batches) return;
    batch = 0;
    ++group;
  }
};

// The weights that a lane copies to shared memory. No other lane reads them. They are row lane / 4
// of each tile, eight consecutive elements from lane % 4 * 8 of each unit.
template <bool kIsGated>
class Weights {
 public:
  __device__ __forceinline__ Weights(const DecodeGemmArgs& args, const Share& share,
                                     const Range& range, int lane)
      : share_(share), range_(range), k_(args.k), row_(lane / 4), first_(lane % 4 * kVectorSize) {
    w_ = args.w + first_;
    ups_ = static_cast<std::int64_t>(args.n) * args.k;
  }

  // Copies a batch to `slot`, which is the lane's. Rows and units that do not exist, or belong to
  // another CTA or warp, become zeros and are not read.
  __device__ __forceinline__ void copy(const Place& place, unsigned char* slot) const {
    const int unit = range_.begin + place.batch * kUnits;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const bool has_row = has_row_of(place, tile);
      const bf16* from = has_row ? address(place, tile, unit) : w_;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        const bool has_unit = unit + i < range_.end && (unit + i) * kUnit + first_ < k_;
        cp_async_16(slot + (tile * kUnits + i) * kWarpSize * kVectorBytes, from + i * kUnit,
                    has_row && has_unit);
      }
    }
  }

  // Each lane prefetches one unit: the 64 bytes that it and its neighbours will copy.
  __device__ __forceinline__ void prefetch(const Place& place) const {
    const int own = first_ / kVectorSize;
    if (own >= kUnits) return;
    const int unit = range_.begin + place.batch * kUnits + own;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (unit < range_.end && has_row_of(place, tile)) {
        prefetch_l2(address(place, tile, unit) - first_);
      }
    }
  }

 private:
  // The two tiles of a group are its lower and upper outputs, or with gates its gates and ups.
  __device__ __forceinline__ int output(const Place& place, int tile) const {
    return share_.group_begin(place.group) + (kIsGated ? 0 : tile * kTileRows) + row_;
  }
  __device__ __forceinline__ bool has_row_of(const Place& place, int tile) const {
    return place.group < share_.num_groups && output(place, tile) < share_.group_end(place.group);
  }
  __device__ __forceinline__ const bf16* address(const Place& place, int tile, int unit) const {
    return w_ + static_cast<std::int64_t>(output(place, tile)) * k_ + unit * kUnit +
           (kIsGated && tile == 1 ? ups_ : 0);
  }

  const Share& share_;
  const Range& range_;
  const bf16* w_ = nullptr;
  std::int64_t ups_ = 0;
  int k_ = 0;
  int row_ = 0;
  int first_ = 0;
};

__device__ __forceinline__ uint4 vector_at(const unsigned char* shared) {
  return *reinterpret_cast<const uint4*>(shared);
}

// sums[tile] += x w^T over a batch, with tokens along the 16 rows of the mma. Inputs may be in any
// order that both operands share: a lane's eight consecutive elements are its two pairs of one step
// and its two of the next. `x` points to the lane's eight elements of the first unit, for tokens
// lane / 4 and lane / 4 + 8. Missing tokens count as zero.
template <bool kHasUpper>
__device__ __forceinline__ void multiply(const unsigned char* slot, const unsigned char* x,
                                         int stride, bool has_lower, bool has_upper, int num_units,
                                         float (&sums)[kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    if (i >= num_units) break;
    uint4 lower = make_uint4(0, 0, 0, 0);
    uint4 upper = make_uint4(0, 0, 0, 0);
    if (has_lower) lower = vector_at(x + i * kUnitBytes);
    if (kHasUpper && has_upper) upper = vector_at(x + 8 * stride + i * kUnitBytes);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 w = vector_at(slot + (tile * kUnits + i) * kWarpSize * kVectorBytes);
      mma_m16n8k16(sums[tile], {lower.x, upper.x, lower.y, upper.y}, {w.x, w.y});
      mma_m16n8k16(sums[tile], {lower.z, upper.z, lower.w, upper.w}, {w.z, w.w});
    }
  }
}

// Starts the copy of a row of k elements into shared memory, padded with zeros. A thread copies the
// vectors threadIdx.x, threadIdx.x + kThreads, ... of every row.
__device__ __forceinline__ void copy_row(const bf16* row, std::int32_t k, unsigned char* target) {
  const int num_vectors = k / kVectorSize;
  const int num_padded = (k + kUnit - 1) / kUnit * (kUnit / kVectorSize);
  for (int i = static_cast<int>(threadIdx.x); i < num_padded; i += kThreads) {
    const bool is_there = i < num_vectors;
    cp_async_16(target + i * kVectorBytes, row + (is_there ? i * kVectorSize : 0), is_there);
  }
}

// Copies the inputs of all tokens.
__device__ __forceinline__ void copy_rows(const bf16* rows, const DecodeGemmArgs& args,
                                          unsigned char* target, int stride) {
  for (int token = 0; token < args.num_tokens; ++token) {
    const std::int64_t row = args.rows != nullptr ? args.rows[token] : token;
    copy_row(rows + row * args.k, args.k, target + token * stride);
  }
}

// Partial sums of squares of every row, in an order that depends on k alone. Threads read only what
// they have copied or written themselves. All threads of the CTA call it; ends with a barrier.
__device__ __forceinline__ void sum_squares(const unsigned char* x, int stride,
                                            const DecodeGemmArgs& args, float* row_sums) {
  const int num_vectors = args.k / kVectorSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int token = 0; token < args.num_tokens; ++token) {
    const auto* row = reinterpret_cast<const uint4*>(x + token * stride);
    float squares = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < num_vectors; i += kThreads) {
      squares = sum_of_squares(unpack(row[i]), squares);
    }
    squares = lane_sum<kWarpSize>(squares);
    if (lane == 0) row_sums[token * kWarps + static_cast<int>(threadIdx.x) / kWarpSize] = squares;
  }
  __syncthreads();
}

// rsqrt(mean(x^2) + eps) of a row.
__device__ __forceinline__ float norm_scale(const float* row_sums, int token,
                                            const DecodeGemmArgs& args) {
  float squares = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) squares += row_sums[token * kWarps + warp];
  return rsqrtf(squares * (1.0f / static_cast<float>(args.k)) + args.eps);
}

// x += norm(update, post_weight). The first CTA stores the new x.
__device__ __forceinline__ void add_update(unsigned char* shared, const Layout& layout,
                                           const DecodeGemmArgs& args, float* row_sums) {
  const unsigned char* const update = shared + layout.update;
  sum_squares(update, layout.stride, args, row_sums);
  const int num_vectors = args.k / kVectorSize;
  for (int token = 0; token < args.num_tokens; ++token) {
    const float scale = norm_scale(row_sums, token, args);
    for (int i = static_cast<int>(threadIdx.x); i < num_vectors; i += kThreads) {
      const int at = token * layout.stride + i * kVectorBytes;
      const uint4 weight = vector_at(shared + layout.post_weight + i * kVectorBytes);
      const uint4 term =
          normalised(unpack(vector_at(update + at)), scale, weight, args.unit_offset);
      const uint4 sum = added(vector_at(shared + at), term);
      *reinterpret_cast<uint4*>(shared + at) = sum;
      if (blockIdx.x == 0 && args.updated != nullptr) {
        store_vector(args.updated + static_cast<std::int64_t>(token) * args.k, i, sum);
      }
    }
  }
}

// x = norm(x, norm_weight).
__device__ __forceinline__ void normalise(unsigned char* shared, const Layout& layout,
                                          const DecodeGemmArgs& args, float* row_sums) {
  sum_squares(shared, layout.stride, args, row_sums);
  const int num_vectors = args.k / kVectorSize;
  for (int token = 0; token < args.num_tokens; ++token) {
    const float scale = norm_scale(row_sums, token, args);
    for (int i = static_cast<int>(threadIdx.x); i < num_vectors; i += kThreads) {
      const uint4 weight = vector_at(shared + layout.norm_weight + i * kVectorBytes);
      unsigned char* const at = shared + token * layout.stride + i * kVectorBytes;
      *reinterpret_cast<uint4*>(at) =
          normalised(unpack(vector_at(at)), scale, weight, args.unit_offset);
    }
  }
}

// Loads the inputs of the product into shared memory, visible to all threads. The norms' weights
// are already in flight.
__device__ __forceinline__ void prepare_inputs(const DecodeGemmArgs& args, const Layout& layout,
                                               unsigned char* shared) {
  copy_rows(args.x, args, shared, layout.stride);
  if (args.update != nullptr) copy_rows(args.update, args, shared + layout.update, layout.stride);
  cp_async_commit();
  // Also waits for the first weights: no more can be requested before some have been used.
  cp_async_wait<0>();
  auto* row_sums = reinterpret_cast<float*>(shared + layout.row_sums);
  if (args.update != nullptr) add_update(shared, layout, args, row_sums);
  if (args.norm_weight != nullptr) {
    normalise(shared, layout, args, row_sums + kMaxTokens * kWarps);
  }
  __syncthreads();
}

// The end of a group: adds the warps' sums in order and stores the result. A thread has one output
// of one token.
template <bool kHasUpper, bool kIsGated>
class Outputs {
 public:
  __device__ __forceinline__ Outputs(const DecodeGemmArgs& args, const Share& share,
                                     float* partials)
      : args_(args), share_(share), partials_(partials) {}

  // All threads of the CTA call it, for one group after another.
  __device__ __forceinline__ void finish(int group, const float (&sums)[kTiles][4]) const {
    constexpr int kOutputs = kIsGated ? kTileRows : kTiles * kTileRows;
    const int thread = static_cast<int>(threadIdx.x);
    const int token = thread / kOutputs;
    const int column = thread % kOutputs;
    const int output = share_.group_begin(group) + column;
    const bool is_stored = token < args_.num_tokens && output < share_.group_end(group);
    const std::int64_t at = static_cast<std::int64_t>(token) * args_.n + output;
    // Loaded before the barrier, to hide the latency.
    float before = 0.0f;
    if (is_stored && args_.epilogue == GemmEpilogue::Add) before = __bfloat162float(halves()[at]);

    // Alternates two buffers. A thread that writes group g + 2 has passed the barrier of
    // group g + 1. All threads reach that barrier after they have read group g.
    float* const partials = partials_ + group % 2 * (kWarps * kWarpFloats);
    put(sums, partials + thread / kWarpSize * kWarpFloats);
    __syncthreads();
    if (!is_stored) return;
    const float sum = total(partials, column / kTileRows, token, column % kTileRows);
    switch (args_.epilogue) {
      case GemmEpilogue::Store: halves()[at] = __float2bfloat16_rn(sum); break;
      case GemmEpilogue::Add: halves()[at] = __float2bfloat16_rn(before + sum); break;
      case GemmEpilogue::StoreFloat: static_cast<float*>(args_.y)[at] = sum; break;
      case GemmEpilogue::Silu:
      case GemmEpilogue::Gelu: {
        const float x = rounded(sum);
        const float up = rounded(total(partials, 1, token, column));
        const bool is_gelu = args_.epilogue == GemmEpilogue::Gelu;
        halves()[at] = __float2bfloat16_rn((is_gelu ? gate<true>(x) : gate<false>(x)) * up);
      }
    }
  }

 private:
  static constexpr int kTokens = kHasUpper ? 16 : 8;
  static constexpr int kTileFloats = kTokens * kTileRows;
  static constexpr int kWarpFloats = kTiles * kTileFloats;

  __device__ __forceinline__ static float rounded(float x) {
    return __bfloat162float(__float2bfloat16_rn(x));
  }
  __device__ __forceinline__ bf16* halves() const { return static_cast<bf16*>(args_.y); }

  // [tile, token, row], from the fragments of an mma.
  __device__ __forceinline__ static void put(const float (&sums)[kTiles][4], float* target) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    float* at = target + lane / 4 * kTileRows + lane % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      auto* lower = reinterpret_cast<float2*>(at + tile * kTileFloats);
      *lower = make_float2(sums[tile][0], sums[tile][1]);
      if (!kHasUpper) continue;
      auto* upper = reinterpret_cast<float2*>(at + tile * kTileFloats + 8 * kTileRows);
      *upper = make_float2(sums[tile][2], sums[tile][3]);
    }
  }
  __device__ __forceinline__ static float total(const float* partials, int tile, int token,
                                                int row) {
    const float* at = partials + tile * kTileFloats + token * kTileRows + row;
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += at[warp * kWarpFloats];
    return sum;
  }

  const DecodeGemmArgs& args_;
  const Share& share_;
  float* partials_;
};

// A warp's first batches that are not yet requested: to shared memory and to the L2 cache.
struct Begun {
  Place next;
  Place ahead;
};

// Requests the weights that need no input: the norms' and the first batches go to shared memory,
// the next batches to the L2 cache.
template <int kStages, class W>
__device__ __forceinline__ Begun begin_weights(const DecodeGemmArgs& args, const Layout& layout,
                                               const W& weights, const Range& range,
                                               unsigned char* shared, unsigned char* slots) {
  if (args.update != nullptr) copy_row(args.post_weight, args.k, shared + layout.post_weight);
  if (args.norm_weight != nullptr) copy_row(args.norm_weight, args.k, shared + layout.norm_weight);
  Place next;
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) {
    weights.copy(next, slots + stage * kBatchBytes);
    cp_async_commit();
    next.advance(range.num_batches);
  }
  Place ahead = next;
  for (int i = 0; i < kPrefetchedBatches; ++i) {
    weights.prefetch(ahead);
    ahead.advance(range.num_batches);
  }
  return {next, ahead};
}

template <bool kHasUpper, bool kIsGated, int kStages>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    decode_gemm_kernel(const DecodeGemmArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  unsigned char* const shared = dynamic_shared_memory();
  const Layout layout = layout_of(args);
  const Share share = share_of<kIsGated>(args.n);
  const Range range = range_of(args.k, warp);
  const Weights<kIsGated> weights(args, share, range, lane);
  unsigned char* const slots =
      shared + layout.batches + warp * (kStages * kBatchBytes) + lane * kVectorBytes;
  const Begun begun = begin_weights<kStages>(args, layout, weights, range, shared, slots);
  Place next = begun.next;
  Place ahead = begun.ahead;

  // Reads and overwrites data of other kernels from here on.
  wait_for_kernels();
  if (ahead.group >= share.num_groups) let_next_kernel_start();
  prepare_inputs(args, layout, shared);

  const Outputs<kHasUpper, kIsGated> outputs(args, share,
                                             reinterpret_cast<float*>(shared + layout.partials));
  const unsigned char* const x = shared + lane / 4 * layout.stride + lane % 4 * kVectorBytes;
  const bool has_lower = lane / 4 < args.num_tokens;
  const bool has_upper = lane / 4 + 8 < args.num_tokens;
  float sums[kTiles][4] = {};
  int stage = 0;
  for (Place here; here.group < share.num_groups; here.advance(range.num_batches)) {
    unsigned char* const slot = slots + stage * kBatchBytes;
    const int unit = range.begin + here.batch * kUnits;
    cp_async_wait<kStages - 1>();
    multiply<kHasUpper>(slot, x + unit * kUnitBytes, layout.stride, has_lower, has_upper,
                        range.end - unit, sums);
    weights.copy(next, slot);
    cp_async_commit();
    next.advance(range.num_batches);
    // Keeps the same amount in flight from memory, even if shared memory has little room.
    weights.prefetch(ahead);
    ahead.advance(range.num_batches);
    // Starts the next kernel once the CTA's first warp has requested its last weights. If it
    // started earlier, this kernel's weights would displace that kernel's from L2.
    if (ahead.group == share.num_groups && ahead.batch == 0) let_next_kernel_start();
    stage = stage + 1 < kStages ? stage + 1 : 0;
    if (here.batch + 1 < range.num_batches) continue;
    outputs.finish(here.group, sums);
    __syncwarp();  // an mma needs converged lanes
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) sums[i / 4][i % 4] = 0.0f;
  }
}

template <bool kHasUpper, int kStages>
auto kernel_of(const DecodeGemmArgs& args) {
  return has_gates(args.epilogue) ? decode_gemm_kernel<kHasUpper, true, kStages>
                                  : decode_gemm_kernel<kHasUpper, false, kStages>;
}

std::int64_t device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

std::int64_t shared_bytes(const DecodeGemmArgs& args, int num_stages) {
  return layout_of(args).size + std::int64_t{num_stages} * kWarps * kBatchBytes;
}

template <int kStages>
void launch_with(const DecodeGemmArgs& args, cudaStream_t stream) {
  const auto kernel =
      args.num_tokens > 8 ? kernel_of<true, kStages>(args) : kernel_of<false, kStages>(args);
  launch(kernel,
         {dim3(static_cast<unsigned>(std::min(args.num_ctas, args.n))), dim3(kThreads),
          static_cast<std::size_t>(shared_bytes(args, kStages))},
         stream, args);
}

}  // namespace

bool decode_gemm_takes(const DecodeGemmArgs& args) {
  return args.num_tokens <= kMaxTokens && args.k % kVectorSize == 0 && args.k <= kMaxInputs &&
         shared_bytes(args, kFewStages) <=
             device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

void launch_decode_gemm(const DecodeGemmArgs& args, cudaStream_t stream) {
  if (args.num_tokens == 0) return;
  if (!decode_gemm_takes(args)) {
    throw CudaError("launch_decode_gemm: too many tokens or inputs");
  }
  // The system reserves 1 KB per CTA. If no second CTA fits the SM anyway, one may use all memory.
  const std::int64_t room =
      device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / kBlocksPerProcessor - 1024;
  const bool shares_processor = shared_bytes(args, kFewStages) <= room;
  const std::int64_t limit =
      shares_processor ? room : device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (shared_bytes(args, kManyStages) <= limit) {
    launch_with<kManyStages>(args, stream);
  } else {
    launch_with<kFewStages>(args, stream);
  }
}

}  // namespace metronome
