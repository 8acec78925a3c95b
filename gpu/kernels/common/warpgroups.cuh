// What kernels of warpgroups share: one that brings tiles in through the bulk copy engine, and one
// or two that compute 64 rows each by wgmma.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace metronome {

constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kGroupRows = 64;
constexpr int kRowBytes = 128;  // of a row of a matrix in shared memory: 64 elements
constexpr std::uint32_t kEightRows = 8 * kRowBytes;
constexpr int kMaxSharedBytes = 227 * 1024;  // of a CTA on sm_90

// A CTA has 65,536 registers, and ptxas gives all threads as many. Of three warpgroups the one that
// loads gives the others of its own; where there are two, both may have 255.
constexpr int kLoaderRegisters = 40;
constexpr int kComputeRegisters = 232;
static_assert((kLoaderRegisters + 2 * kComputeRegisters) * kGroupThreads <= 65536);

// The warpgroup of a thread of those that compute, as a number that the compiler knows to be the
// same in a warp.
__device__ __forceinline__ int uniform_group(int thread) {
  return __shfl_sync(0xffffffffu, thread / kGroupThreads, 0);
}

}  // namespace metronome
