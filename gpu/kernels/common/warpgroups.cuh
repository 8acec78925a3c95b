// SPDX-License-Identifier: Apache-2.0
// Shared by kernels of warpgroups. One warpgroup loads tiles through the bulk copy engine; one or
// two others compute 64 rows each by wgmma.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace metronome {

constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kGroupRows = 64;
constexpr int kRowBytes = 128;  // of a matrix row in shared memory: 64 elements
constexpr std::uint32_t kEightRows = 8 * kRowBytes;
constexpr int kMaxSharedBytes = 227 * 1024;  // of a CTA on sm_90

// A CTA has 65,536 registers; ptxas gives every thread the same number. With three warpgroups, the
// loading one gives registers to the others. With two, every thread may have 255.
constexpr int kLoaderRegisters = 40;
constexpr int kComputeRegisters = 232;
static_assert((kLoaderRegisters + 2 * kComputeRegisters) * kGroupThreads <= 65536);

// The warpgroup of a computing thread. The compiler knows that the result is uniform in a warp.
__device__ __forceinline__ int uniform_group(int thread) {
  return __shfl_sync(0xffffffffu, thread / kGroupThreads, 0);
}

}  // namespace metronome
