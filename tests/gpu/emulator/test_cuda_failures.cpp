// SPDX-License-Identifier: Apache-2.0
// The emulator's errors for kernels that hang, diverge or ask for more than a GPU has.
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/emulator/cuda_emulator.h"
#include "gpu/kernels/common/ptx.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/gpu/emulator/device_values.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

// Half of the block waits for the other half, which waits in a warp for a lane that has left.
__global__ void deadlock_kernel(int dead_block) {
  if (static_cast<int>(blockIdx.x) != dead_block) return;
  if (threadIdx.x < 32) {
    __syncthreads();
  } else if (threadIdx.x != 40) {
    __syncwarp();
  }
}

__global__ void divergent_barriers_kernel() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void divergent_mma_kernel() {
  float d[4] = {};
  const std::uint32_t a[4] = {};
  const std::uint32_t b[2] = {};
  if (threadIdx.x < 16) {
    mma_m16n8k16(d, a, b);
  } else {
    mma_m16n8k16(d, a, b);
  }
}

__global__ void mixed_collectives_kernel() {
  if (threadIdx.x % 2 == 0) {
    __syncwarp();
  } else {
    __ballot_sync(0xffffffffu, 1);
  }
}

__global__ void mixed_masks_kernel() {
  __ballot_sync(threadIdx.x < 16 ? 0xffffffffu : 0xffff8000u, 1);
}

__global__ void missing_caller_kernel() { __syncwarp(0xfffffffeu); }

__global__ void unnamed_source_kernel() {
  if (threadIdx.x < 16) __shfl_sync(0x0000ffffu, 1, 20);
}

// Lanes may take part in different collectives one after another.
__global__ void nested_masks_kernel(unsigned* out) {
  unsigned result = 0;
  if (threadIdx.x < 8) result = __ballot_sync(0xffu, 1);
  if (threadIdx.x < 16) result += __ballot_sync(0xffffu, 1);
  result += __ballot_sync(0xffffffffu, 1);
  out[threadIdx.x] = result;
}

__global__ void nothing_kernel() {}
__global__ void store_kernel(int* out) { *out = 1; }
template <int kIndex>
__global__ void shared_kernel(int* out) {
  dynamic_shared_memory()[0] = 1;
  *out = kIndex;
}

std::string failure_of(void (*kernel)(), unsigned num_threads) {
  emulator::reset();
  CHECK(run_kernel_quietly(kernel, {1, num_threads}) == cudaErrorLaunchFailure);
  return emulator::last_failure();
}

cudaError_t launch_status(dim3 grid, dim3 block, std::size_t shared_bytes = 0) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  return cudaLaunchKernelEx(&config, nothing_kernel);
}

}  // namespace

TEST_CASE("a deadlock ends the launch and says who waits where") {
  const FreshEmulator fresh;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    emulator::reset();
    emulator::set_seed(seed);
    CHECK(run_kernel_quietly(nothing_kernel, {1, 1}) == cudaSuccess);
    CHECK(run_kernel_quietly(deadlock_kernel, {3, 64}, 1) == cudaErrorLaunchFailure);
    const std::string message = emulator::last_failure();
    CAPTURE(message);
    CHECK(mentions(message, "launch 1 ("));
    CHECK(mentions(message, "grid 3x1x1, block 64x1x1, 0 bytes of dynamic shared memory"));
    CHECK(mentions(message, "(int)"));
    CHECK(mentions(message, "block (1,0,0), thread ("));
    CHECK(mentions(message, "deadlock: 1 threads have exited, the first is (40,0,0)"));
    CHECK(mentions(message, "32 threads wait in __syncthreads at "));
    CHECK(mentions(message, "test_cuda_failures.cpp:"));
    CHECK(mentions(message, "31 threads wait in __syncwarp at "));
    CHECK(mentions(message, "with mask 0xffffffff, the first is (32,0,0)"));
  }
}

TEST_CASE("collectives that a warp or block does not enter together are found") {
  const FreshEmulator fresh;
  CHECK(mentions(failure_of(divergent_barriers_kernel, 64), "divergent barriers: __syncthreads"));
  CHECK(mentions(failure_of(divergent_mma_kernel, 32), "deadlock: 16 threads wait in mma"));
  CHECK(mentions(failure_of(divergent_mma_kernel, 16), "16 threads wait in mma"));
  const std::string mixed = failure_of(mixed_collectives_kernel, 32);
  CHECK(mentions(mixed, "16 threads wait in __syncwarp"));
  CHECK(mentions(mixed, "16 threads wait in a vote"));
  const std::string masks = failure_of(mixed_masks_kernel, 32);
  CHECK(mentions(masks, "with mask 0xffffffff, the first is (0,0,0)"));
  CHECK(mentions(masks, "with mask 0xffff8000, the first is (16,0,0)"));
  CHECK(mentions(failure_of(missing_caller_kernel, 32), "the mask lacks the caller"));
  CHECK(mentions(failure_of(unnamed_source_kernel, 32), "reads lane 20, which is not in its mask"));
}

TEST_CASE("groups of lanes of different sizes meet one after another") {
  const FreshEmulator fresh;
  const DeviceArray<unsigned> out(32);
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    emulator::set_seed(seed);
    launch(nested_masks_kernel, {1, 32}, nullptr, out.data());
    std::vector<unsigned> expected(32, 0xffffffffu);
    for (unsigned i = 0; i < 16; ++i) expected[i] += i < 8 ? 0xffffu + 0xffu : 0xffffu;
    CHECK(out.download() == expected);
  }
}

TEST_CASE("a broken device answers everything with its error until it is reset") {
  const FreshEmulator fresh;
  const DeviceArray<int> out = on_device<int>({5});
  const Stream stream = make_stream();
  CHECK(run_kernel_quietly(missing_caller_kernel, {1, 32}) == cudaErrorLaunchFailure);
  CHECK(launch_status(1, 1) == cudaErrorLaunchFailure);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 16) == cudaErrorLaunchFailure);
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(error_of<CudaError>([&] { out.download(); }) == "cudaMemcpy: unspecified launch failure");
  emulator::reset();
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(out.download() == std::vector<int>{5});
}

TEST_CASE("work behind a failing kernel is not done") {
  const FreshEmulator fresh;
  const DeviceArray<int> out = on_device<int>({5});
  emulator::set_failures_silent(true);
  launch(missing_caller_kernel, {1, 32}, nullptr);
  launch(store_kernel, {1, 1}, nullptr, out.data());
  CHECK(cudaMemsetAsync(out.data(), 0, sizeof(int)) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CHECK(emulator::num_launches() == 2);
  CHECK(emulator::num_kernels_executed() == 1);
  emulator::reset();
  CHECK(out.download() == std::vector<int>{5});
}

TEST_CASE("launches have the limits of a GPU") {
  const FreshEmulator fresh;
  CHECK(launch_status(1, 1024) == cudaSuccess);
  CHECK(launch_status(1, 1025) == cudaErrorInvalidConfiguration);
  CHECK(launch_status(1, dim3(32, 33)) == cudaErrorInvalidConfiguration);
  CHECK(launch_status(1, dim3(1, 1, 64)) == cudaSuccess);
  CHECK(launch_status(1, dim3(1, 1, 65)) == cudaErrorInvalidConfiguration);
  CHECK(launch_status(1, 0) == cudaErrorInvalidConfiguration);
  CHECK(launch_status(0, 1) == cudaErrorInvalidConfiguration);
  CHECK(launch_status(dim3(1, 65536), 1) == cudaErrorInvalidConfiguration);
  CHECK(launch_status(dim3(1, 1, 65535), 1) == cudaSuccess);
  CHECK(launch_status(dim3(1, 1, 65536), 1) == cudaErrorInvalidConfiguration);
  CHECK(launch_status(1, 1, 48 * 1024) == cudaSuccess);
  CHECK(launch_status(1, 1, 48 * 1024 + 1) == cudaErrorInvalidValue);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("more than 48 KB of shared memory is allowed kernel by kernel, as far as there is") {
  const FreshEmulator fresh;
  const DeviceArray<int> out(1);
  const auto allow = [](auto kernel, int bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  const auto shape = [](std::size_t bytes) {
    cudaLaunchConfig_t config = {};
    config.blockDim = 1;
    config.gridDim = 1;
    config.dynamicSmemBytes = bytes;
    return config;
  };
  CHECK(allow(shared_kernel<1>, 227 * 1024) == cudaSuccess);
  CHECK(allow(shared_kernel<1>, 227 * 1024 + 1) == cudaErrorInvalidValue);
  const cudaLaunchConfig_t large = shape(227 * 1024);
  CHECK(cudaLaunchKernelEx(&large, shared_kernel<1>, out.data()) == cudaSuccess);
  CHECK(cudaLaunchKernelEx(&large, shared_kernel<2>, out.data()) == cudaErrorInvalidValue);
  CHECK(out.download() == std::vector<int>{1});
  emulator::set_compute_capability(8, 9);
  CHECK(allow(shared_kernel<2>, 99 * 1024) == cudaSuccess);
  CHECK(allow(shared_kernel<2>, 100 * 1024) == cudaErrorInvalidValue);
  emulator::set_compute_capability(8, 0);
  CHECK(allow(shared_kernel<2>, 163 * 1024) == cudaSuccess);
  CHECK(allow(shared_kernel<2>, 164 * 1024) == cudaErrorInvalidValue);
}

TEST_CASE("launches and executions fail when a test asks for it") {
  const FreshEmulator fresh;
  emulator::fail_next_launch(cudaErrorLaunchOutOfResources);
  CHECK(launch_status(1, 1) == cudaErrorLaunchOutOfResources);
  CHECK(launch_status(1, 1) == cudaSuccess);
  emulator::fail_launch(2, cudaErrorLaunchOutOfResources);
  CHECK(launch_status(1, 1) == cudaSuccess);
  CHECK(launch_status(1, 1) == cudaSuccess);
  CHECK(launch_status(1, 1) == cudaErrorLaunchOutOfResources);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(emulator::num_launches() == 3);
  CHECK(emulator::num_launches_of(nothing_kernel) == 3);
  CHECK(emulator::num_launches_of(store_kernel) == 0);

  emulator::set_failures_silent(true);
  emulator::fail_execution(1, cudaErrorIllegalAddress);
  CHECK(launch_status(1, 1) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(launch_status(1, 1) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(launch_status(1, 1) == cudaErrorIllegalAddress);
}

}  // namespace TEST_FILE
