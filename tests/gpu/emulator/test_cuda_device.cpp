// SPDX-License-Identifier: Apache-2.0
// The emulated device itself: its memory, what it says of itself, and when there is none.
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gpu/emulator/cuda_emulator.h"
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/launch.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/gpu/emulator/device_values.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

__global__ void count_kernel(unsigned* counter, unsigned* last) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  // The last block to come sees what all have added.
  if (atomicAdd(counter, 1u) == gridDim.x - 1) *last = *counter;
}

__global__ void joining_kernel(int* out) {
  join_kernels();
  out[threadIdx.x] = 1;
}

__global__ void half_joining_kernel(int* out) {
  if (threadIdx.x < 32) return;
  join_kernels();
  out[threadIdx.x] = 1;
}

__global__ void atomics_kernel(int* sum, unsigned* most, unsigned long long* least, unsigned* bits,
                               float* real, int* swapped) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(sum, static_cast<int>(i));
  atomicMax(most, i * 7 % 256);
  atomicMin(least, 1000ull + i);
  atomicOr(bits, 1u << i % 32);
  atomicAdd(real, 0.5f);
  atomicCAS(swapped, -1, static_cast<int>(i));
}

__global__ void arithmetic_kernel(double* out) {
  out[0] = static_cast<double>(rsqrtf(16.0f));
  out[1] = static_cast<double>(min(3, -2)) + static_cast<double>(max(5u, 7u));
  out[2] = static_cast<double>(__popc(0xf0f0u));
  out[3] = static_cast<double>(__ffs(8) * 100 + __clz(1));
  out[4] = static_cast<double>(__clzll(1));
  out[5] = static_cast<double>(__uint_as_float(__float_as_uint(1.25f)));
  out[6] = __longlong_as_double(__double_as_longlong(-2.5));
  out[7] = static_cast<double>(__expf(0.0f)) + static_cast<double>(fmaxf(2.0f, 3.0f));
  out[8] = static_cast<double>(__umul64hi(1ull << 63, 6));
}

}  // namespace

TEST_CASE("memory is limited, counted and given back") {
  const FreshEmulator fresh;
  const std::size_t before = emulator::bytes_allocated();
  emulator::set_memory_limit(before + 1000);
  std::size_t free = 0;
  std::size_t total = 0;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == 1000);
  CHECK(total == before + 1000);
  {
    const DeviceArray<char> array(600);
    CHECK(emulator::bytes_allocated() == before + 600);
    CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(free == 400);
    CHECK(error_of<CudaError>([] { const DeviceArray<char> more(401); }) ==
          "cudaMalloc: out of memory");
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    const DeviceArray<char> rest(400);
  }
  CHECK(emulator::bytes_allocated() == before);
  CHECK(cudaGetLastError() == cudaSuccess);
  void* memory = &free;
  CHECK(cudaMalloc(&memory, 0) == cudaSuccess);
  CHECK(memory == nullptr);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  CHECK(cudaFree(&free) == cudaErrorInvalidValue);
  const std::size_t pinned = emulator::pinned_bytes_allocated();
  {
    const PinnedBytes bytes(100);
    CHECK(emulator::pinned_bytes_allocated() == pinned + 100);
  }
  CHECK(emulator::pinned_bytes_allocated() == pinned);
  CHECK(cudaFreeHost(&free) == cudaErrorInvalidValue);
}

TEST_CASE("memory begins with bytes that are NaN and an invalid index") {
  const FreshEmulator fresh;
  const DeviceArray<unsigned char> array(1000);
  CHECK(array.download() == std::vector<unsigned char>(1000, 0xff));
  const PinnedBytes pinned(8);
  CHECK(std::to_integer<int>(pinned.data()[7]) == 0xff);
}

TEST_CASE("memory is freed after the work that may use it") {
  const FreshEmulator fresh;
  const Stream stream = make_stream();
  const DeviceArray<unsigned> result(1);
  {
    const DeviceArray<unsigned> counter = on_device<unsigned>({0});
    launch(count_kernel, {40, 64}, stream.get(), counter.data(), result.data());
    CHECK(emulator::num_kernels_executed() == 0);
  }
  CHECK(emulator::num_kernels_executed() == 1);
  CHECK(result.download().front() == 40);
}

TEST_CASE("copies have to fit what was allocated and go where they say") {
  const FreshEmulator fresh;
  const DeviceArray<char> array(100);
  const DeviceArray<char> other(50);
  std::vector<char> host(200);
  CHECK(cudaMemcpy(array.data(), host.data(), 100, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaMemcpy(array.data(), host.data(), 101, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpy(array.data() + 50, host.data(), 51, cudaMemcpyDefault) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host.data(), array.data() + 50, 51, cudaMemcpyDefault) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(other.data(), array.data(), 51, cudaMemcpyDeviceToDevice) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpy(other.data(), array.data() + 50, 50, cudaMemcpyDefault) == cudaSuccess);
  CHECK(cudaMemcpy(array.data(), host.data(), 10, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host.data(), host.data() + 10, 10, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host.data(), host.data(), 10, static_cast<cudaMemcpyKind>(9)) ==
        cudaErrorInvalidMemcpyDirection);
  CHECK(cudaMemset(array.data() + 1, 0, 100) == cudaErrorInvalidValue);
  CHECK(cudaMemset(host.data(), 0, 100) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault) == cudaSuccess);
}

TEST_CASE("the device describes itself") {
  const FreshEmulator fresh;
  int value = 0;
  CHECK(cudaGetDeviceCount(&value) == cudaSuccess);
  CHECK(value == 1);
  CHECK(cudaSetDevice(0) == cudaSuccess);
  CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 1) == cudaErrorInvalidDevice);
  emulator::set_compute_capability(8, 6);
  emulator::set_num_multiprocessors(5);
  CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK(properties.name == std::string("CUDA emulator"));
  CHECK(properties.major == 8);
  CHECK(properties.minor == 6);
  CHECK(properties.multiProcessorCount == 5);
  CHECK(properties.sharedMemPerBlockOptin == 99 * 1024);
  CHECK(properties.maxThreadsPerMultiProcessor == 1536);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  CHECK(value == 5);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess);
  CHECK(value == 99 * 1024);
  CHECK(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(-1), 0) ==
        cudaErrorInvalidValue);
  CHECK(cudaDriverGetVersion(&value) == cudaSuccess);
  CHECK(value == 13000);
}

TEST_CASE("occupancy follows from threads and shared memory") {
  const FreshEmulator fresh;
  const auto blocks = [](int block_size, std::size_t shared_bytes) {
    int count = -1;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, count_kernel, block_size,
                                                        shared_bytes) == cudaSuccess);
    return count;
  };
  CHECK(blocks(1024, 0) == 2);
  CHECK(blocks(128, 0) == 16);
  CHECK(blocks(33, 0) == 32);
  CHECK(blocks(128, 75 * 1024) == 3);
  CHECK(blocks(128, 75 * 1024 + 1) == 2);  // the system's own KB
  CHECK(blocks(128, 227 * 1024) == 1);
  CHECK(blocks(128, 228 * 1024) == 0);
  emulator::set_compute_capability(8, 9);
  CHECK(blocks(1024, 0) == 1);
  CHECK(blocks(32, 0) == 24);
}

TEST_CASE("without a driver every call says so") {
  const FreshEmulator fresh;
  emulator::set_device_count_error(cudaErrorInsufficientDriver);
  int count = -1;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
  CHECK(error_of<CudaError>([] { make_stream(); }) ==
        "cudaStreamCreate: CUDA driver version is insufficient for CUDA runtime version");
  CHECK(cudaDriverGetVersion(&count) == cudaSuccess);
  CHECK(count == 0);
  CHECK(cudaGetErrorName(cudaErrorNoDevice) == std::string("cudaErrorNoDevice"));
  CHECK(cudaGetErrorString(static_cast<cudaError_t>(12345)) ==
        std::string("unrecognized error code"));
}

TEST_CASE("atomics add up over all blocks") {
  const FreshEmulator fresh;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    emulator::set_seed(seed);
    const DeviceArray<int> sum = on_device<int>({0});
    const DeviceArray<unsigned> most = on_device<unsigned>({0});
    const DeviceArray<unsigned long long> least = on_device<unsigned long long>({~0ull});
    const DeviceArray<unsigned> bits = on_device<unsigned>({0});
    const DeviceArray<float> real = on_device<float>({0});
    const DeviceArray<int> swapped = on_device<int>({-1});
    launch(atomics_kernel, {4, 64}, nullptr, sum.data(), most.data(), least.data(), bits.data(),
           real.data(), swapped.data());
    CHECK(sum.download().front() == 256 * 255 / 2);
    CHECK(most.download().front() == 255);
    CHECK(least.download().front() == 1000);
    CHECK(bits.download().front() == 0xffffffffu);
    CHECK(real.download().front() == 128.0f);
    CHECK(swapped.download().front() >= 0);
    CHECK(swapped.download().front() < 256);
  }
}

TEST_CASE("device arithmetic has the values that CUDA documents") {
  const FreshEmulator fresh;
  const DeviceArray<double> out(9);
  launch(arithmetic_kernel, {1, 1}, nullptr, out.data());
  CHECK(out.download() == std::vector<double>{0.25, 5, 8, 431, 63, 1.25, -2.5, 4, 3});
}

TEST_CASE("threads of the host share the device") {
  const FreshEmulator fresh;
  constexpr int kNumThreads = 4;
  const DeviceArray<unsigned> counters = on_device(std::vector<unsigned>(kNumThreads, 0));
  const DeviceArray<unsigned> results(kNumThreads);
  std::vector<std::thread> threads;
  std::vector<cudaError_t> errors(kNumThreads, cudaErrorUnknown);
  for (int i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&, i] {
      const Stream stream = make_stream();
      launch(count_kernel, {50, 96}, stream.get(), counters.data() + i, results.data() + i);
      errors[static_cast<std::size_t>(i)] = cudaStreamSynchronize(stream.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(errors == std::vector<cudaError_t>(kNumThreads, cudaSuccess));
  CHECK(results.download() == std::vector<unsigned>(kNumThreads, 50));
}

TEST_CASE("every thread of a kernel that is launched early waits for the one in front") {
  const FreshEmulator fresh;
  const DeviceArray<int> out(64);
  const LaunchShape shape = {dim3(2), dim3(64)};
  CHECK(run_kernel_quietly(half_joining_kernel, shape, out.data()) == cudaSuccess);
  {
    const EarlyLaunches early(true);
    CHECK(run_kernel_quietly(joining_kernel, shape, out.data()) == cudaSuccess);
    const EarlyLaunches late(false);
    CHECK(run_kernel_quietly(half_joining_kernel, shape, out.data()) == cudaSuccess);
  }
  CHECK_FALSE(EarlyLaunches::is_on());
  const EarlyLaunches early(true);
  CHECK(run_kernel_quietly(half_joining_kernel, shape, out.data()) != cudaSuccess);
}

TEST_CASE("no GPU before compute capability 9.0 launches early") {
  const FreshEmulator fresh;
  emulator::set_compute_capability(8, 9);
  const DeviceArray<int> out(64);
  const EarlyLaunches early(true);
  CHECK_THROWS_AS(launch(joining_kernel, {dim3(1), dim3(64)}, nullptr, out.data()), CudaError);
}

}  // namespace TEST_FILE
