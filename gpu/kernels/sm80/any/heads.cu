// SPDX-License-Identifier: Apache-2.0
// Splits the fused projections into queries and the KV cache.
#include <algorithm>

#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/common/vector.cuh"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/launch.h"

namespace metronome {
namespace {

constexpr int kMaxThreads = 512;

// A lane has eight elements of each half of a head. Pair j of RoPE is low.x[j] and high.x[j].
struct HeadShare {
  uint4 low;
  uint4 high;
};

template <int kLanes>
__device__ __forceinline__ HeadShare load_head(const bf16* head, int lane) {
  return {load_vector(head, lane), load_vector(head, lane + kLanes)};
}

// bf16(low * cos - high * sin), bf16(high * cos + low * sin).
__device__ __forceinline__ HeadShare turned(const HeadShare& head, const Float8& cosines,
                                            const Float8& sines) {
  const Float8 low = unpack(head.low);
  const Float8 high = unpack(head.high);
  Float8 new_low;
  Float8 new_high;
#pragma unroll
  for (int i = 0; i < kVectorSize; ++i) {
    new_low.x[i] = low.x[i] * cosines.x[i] - high.x[i] * sines.x[i];
    new_high.x[i] = high.x[i] * cosines.x[i] + low.x[i] * sines.x[i];
  }
  return {pack(new_low), pack(new_high)};
}

// The target of a token's head; null for keys and values of padding.
template <int kHeadDim>
__device__ __forceinline__ bf16* head_target(const HeadsArgs& args, std::int64_t token, int head,
                                             std::int32_t slot) {
  if (head < args.n_heads) return args.queries + (token * args.n_heads + head) * kHeadDim;
  if (slot < 0) return nullptr;
  const bool is_key = head < args.n_heads + args.n_kv_heads;
  const int kv_head = head - args.n_heads - (is_key ? 0 : args.n_kv_heads);
  const std::int64_t block = slot / args.block_size;
  const std::int64_t row =
      (block * args.n_kv_heads + kv_head) * args.block_size + slot % args.block_size;
  return (is_key ? args.keys : args.values) + row * kHeadDim;
}

// One block per token, head_dim / 16 lanes of a warp per head. With more heads than a block holds,
// the block loops. All lanes stay in the loop for the sums.
template <int kHeadDim>
__global__ void __launch_bounds__(kMaxThreads, 2) heads_kernel(HeadsArgs args) {
  join_kernels();
  constexpr int kLanes = kHeadDim / 2 / kVectorSize;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int heads_at_once = static_cast<int>(blockDim.x) / kLanes;
  const int num_heads = args.n_heads + 2 * args.n_kv_heads;
  const int first_value = args.n_heads + args.n_kv_heads;
  const bool has_norm = args.query_norm != nullptr || args.key_norm != nullptr;
  const std::int64_t token = blockIdx.x;
  const std::int32_t slot = args.slots[token];
  const std::int64_t position = args.positions[token];

  for (int first = 0; first < num_heads; first += heads_at_once) {
    const int head = first + static_cast<int>(threadIdx.x) / kLanes;
    const bool is_turned = head < first_value;
    const bf16* norm = nullptr;
    if (is_turned) norm = head < args.n_heads ? args.query_norm : args.key_norm;

    // Starts all loads before anything waits. The angles come last, because they need the position.
    HeadShare share = {};
    HeadShare weight = {};
    Float8 cosines = {};
    Float8 sines = {};
    if (head < num_heads) {
      share = load_head<kLanes>(args.qkv + (token * num_heads + head) * kHeadDim, lane);
    }
    if (norm != nullptr) weight = load_head<kLanes>(norm, lane);
    if (is_turned) {
      const float* angles = args.cos_sin + position * kHeadDim + lane * kVectorSize;
      cosines = load_float8(angles);
      sines = load_float8(angles + kHeadDim / 2);
    }

    if (has_norm) {
      const float squares =
          sum_of_squares(unpack(share.high), sum_of_squares(unpack(share.low), 0.0f));
      const float mean = lane_sum<kLanes>(squares) / static_cast<float>(kHeadDim);
      if (norm != nullptr) {
        const float scale = rsqrtf(mean + args.eps);
        share.low = normalised(unpack(share.low), scale, weight.low, args.unit_offset);
        share.high = normalised(unpack(share.high), scale, weight.high, args.unit_offset);
      }
    }
    if (head >= num_heads) continue;
    if (is_turned) share = turned(share, cosines, sines);
    bf16* target = head_target<kHeadDim>(args, token, head, slot);
    if (target == nullptr) continue;
    store_vector(target, lane, share.low);
    store_vector(target, lane + kLanes, share.high);
  }
}

template <int kHeadDim>
void launch_with(const HeadsArgs& args, cudaStream_t stream) {
  const std::int32_t threads = (args.n_heads + 2 * args.n_kv_heads) * (kHeadDim / 2 / kVectorSize);
  launch(heads_kernel<kHeadDim>,
         {dim3(static_cast<unsigned>(args.num_tokens)),
          dim3(std::min<unsigned>(whole_warps(threads), kMaxThreads))},
         stream, args);
}

}  // namespace

void launch_heads(const HeadsArgs& args, cudaStream_t stream) {
  switch (args.head_dim) {
    case 64: return launch_with<64>(args, stream);
    case 128: return launch_with<128>(args, stream);
    case 256: return launch_with<256>(args, stream);
    default: throw CudaError("launch_heads: head_dim must be 64, 128 or 256");
  }
}

}  // namespace metronome
