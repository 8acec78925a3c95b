// SPDX-License-Identifier: Apache-2.0
// Shared by the row kernels: 16-byte accesses to rows, arithmetic on the eight elements of such a
// vector, and sums over threads in a fixed order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "gpu/kernels/kernels.h"

namespace metronome {

constexpr int kVectorSize = 8;  // bf16 elements in 16 bytes
constexpr int kWarpSize = 32;
constexpr unsigned kFullWarp = 0xffffffffu;

struct Float8 {
  float x[kVectorSize];
};

__device__ __forceinline__ uint4 load_vector(const bf16* row, std::int64_t vector) {
  return reinterpret_cast<const uint4*>(row)[vector];
}

__device__ __forceinline__ void store_vector(bf16* row, std::int64_t vector, const uint4& value) {
  reinterpret_cast<uint4*>(row)[vector] = value;
}

__device__ __forceinline__ Float8 load_float8(const float* values) {
  const float4 a = reinterpret_cast<const float4*>(values)[0];
  const float4 b = reinterpret_cast<const float4*>(values)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// A bf16 is the upper half of a float, so a shift and a mask unpack a pair.
__device__ __forceinline__ Float8 unpack(const uint4& vector) {
  const std::uint32_t pairs[4] = {vector.x, vector.y, vector.z, vector.w};
  Float8 values;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values.x[2 * i] = __uint_as_float(pairs[i] << 16);
    values.x[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
  }
  return values;
}

// Rounded to nearest, ties to even.
__device__ __forceinline__ uint4 pack(const Float8& values) {
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values.x[2 * i], values.x[2 * i + 1]);
    std::memcpy(&pairs[i], &pair, sizeof(pair));
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ __forceinline__ float sum_of_squares(const Float8& values, float sum) {
#pragma unroll
  for (int i = 0; i < kVectorSize; ++i) sum = fmaf(values.x[i], values.x[i], sum);
  return sum;
}

// a + b of each element, rounded once.
__device__ __forceinline__ uint4 added(const uint4& a, const uint4& b) {
  Float8 sum = unpack(a);
  const Float8 terms = unpack(b);
#pragma unroll
  for (int i = 0; i < kVectorSize; ++i) sum.x[i] += terms.x[i];
  return pack(sum);
}

// The last part of norm() in kernels.h. `scale` is rsqrt(mean(x^2) + eps).
__device__ __forceinline__ uint4 normalised(const Float8& values, float scale, const uint4& weight,
                                            bool unit_offset) {
  const Float8 weights = unpack(weight);
  Float8 result;
#pragma unroll
  for (int i = 0; i < kVectorSize; ++i) result.x[i] = values.x[i] * scale;
  if (!unit_offset) result = unpack(pack(result));
#pragma unroll
  for (int i = 0; i < kVectorSize; ++i) {
    result.x[i] *= unit_offset ? 1.0f + weights.x[i] : weights.x[i];
  }
  return pack(result);
}

// The sum over each kLanes neighbouring lanes. All lanes get the same bits, because partners add
// the same two numbers. For whole warps; kLanes is a power of two.
template <int kLanes>
__device__ __forceinline__ float lane_sum(float x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kFullWarp, x, distance);
  }
  return x;
}

// The sum over a block of whole warps, in every thread. `partials` is shared memory with a float
// for each warp. It must hold nothing else from before the call until the block ends, so one
// barrier is enough.
__device__ __forceinline__ float block_sum(float x, float* partials) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  x = lane_sum<kWarpSize>(x);
  if (lane == 0) partials[static_cast<int>(threadIdx.x) / kWarpSize] = x;
  __syncthreads();
  return lane_sum<kWarpSize>(lane < num_warps ? partials[lane] : 0.0f);
}

// Threads of the smallest block of whole warps that has at least `num_threads`.
inline unsigned whole_warps(std::int32_t num_threads) {
  return static_cast<unsigned>((num_threads + kWarpSize - 1) / kWarpSize * kWarpSize);
}

}  // namespace metronome
