// SPDX-License-Identifier: Apache-2.0
// How the emulator runs a kernel: barriers, collectives of warps, and the orders that a GPU leaves
// open. Tests of what kernels get wrong run over several seeds, as one order may hide it.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "gpu/emulator/cuda_emulator.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/emulator/device_values.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

__device__ int thread_rank() {
  return static_cast<int>((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
}

__global__ void reverse_kernel(const int* in, int* out, bool has_barrier) {
  __shared__ int tile[256];
  const int i = thread_rank();
  tile[i] = in[blockIdx.x * 256 + threadIdx.x];
  if (has_barrier) __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = tile[255 - i];
}

// The first `num_exits` threads leave before the barrier.
__global__ void predicates_kernel(int* out, int num_exits, int num_true) {
  const int i = thread_rank();
  if (i < num_exits) return;
  const int is_true = i < num_exits + num_true ? 7 : 0;
  out[i * 3] = __syncthreads_count(is_true);
  out[i * 3 + 1] = __syncthreads_and(is_true);
  out[i * 3 + 2] = __syncthreads_or(is_true);
}

__global__ void indices_kernel(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned num_threads = blockDim.x * blockDim.y * blockDim.z;
  unsigned* const mine = out + (block * num_threads + static_cast<unsigned>(thread_rank())) * 6;
  mine[0] = threadIdx.x;
  mine[1] = threadIdx.y;
  mine[2] = threadIdx.z;
  mine[3] = blockIdx.x;
  mine[4] = blockIdx.y;
  mine[5] = blockIdx.z;
}

template <class T>
__global__ void shuffles_kernel(const T* in, T* out, int operand, int width) {
  const T value = in[threadIdx.x];
  T* const mine = out + threadIdx.x * 4;
  mine[0] = __shfl_sync(0xffffffffu, value, operand, width);
  mine[1] = __shfl_up_sync(0xffffffffu, value, static_cast<unsigned>(operand), width);
  mine[2] = __shfl_down_sync(0xffffffffu, value, static_cast<unsigned>(operand), width);
  mine[3] = __shfl_xor_sync(0xffffffffu, value, operand, width);
}

// Even and odd lanes vote apart.
__global__ void votes_kernel(unsigned predicates, unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned mask = lane % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
  const int predicate = static_cast<int>(predicates >> lane & 1u);
  out[threadIdx.x * 3] = __ballot_sync(mask, predicate);
  out[threadIdx.x * 3 + 1] = static_cast<unsigned>(__any_sync(mask, predicate));
  out[threadIdx.x * 3 + 2] = static_cast<unsigned>(__all_sync(mask, predicate));
}

// Lanes write, and read their neighbour.
__global__ void neighbours_kernel(int* out, bool has_sync) {
  __shared__ int values[32];
  values[threadIdx.x] = 0;
  __syncwarp();
  values[threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
  if (has_sync) __syncwarp();
  out[threadIdx.x] = values[(threadIdx.x + 1) % 32];
}

// In which order threads and blocks come to their last line.
__global__ void order_kernel(int* next, int* order) {
  order[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

std::vector<int> order_of(std::uint64_t seed, unsigned num_blocks, unsigned num_threads) {
  emulator::reset();
  emulator::set_seed(seed);
  const DeviceArray<int> next = on_device<int>({0});
  const DeviceArray<int> order(std::size_t{num_blocks} * num_threads);
  launch(order_kernel, {num_blocks, num_threads}, nullptr, next.data(), order.data());
  return order.download();
}

std::vector<int> counted(int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = i;
  return values;
}

// The rule of shfl.sync in the PTX ISA, in other words than the emulator's.
int expected_source(int kind, int lane, int operand, int width) {
  const int segment = lane / width;
  int source = 0;
  switch (kind) {
    case 0: return segment * width + operand % width;
    case 1: source = lane - operand; break;
    case 2: source = lane + operand; break;
    default: source = lane ^ operand; break;
  }
  // Exclusive-or may read an earlier segment; the others stay in their own.
  const bool is_readable =
      source >= 0 && (kind == 3 ? source / width <= segment : source / width == segment);
  return is_readable ? source : lane;
}

template <class T>
void check_shuffles(Rng& rng) {
  std::vector<T> in(64);
  for (T& value : in) value = static_cast<T>(rng.uniform_int(-1'000'000'000, 1'000'000'000));
  const DeviceArray<T> device_in = on_device(in);
  const DeviceArray<T> device_out(in.size() * 4);
  for (const int width : {1, 2, 4, 8, 16, 32}) {
    const int operand = draw(rng, 0, 31);
    launch(shuffles_kernel<T>, {1, 64}, nullptr, device_in.data(), device_out.data(), operand,
           width);
    std::vector<T> expected;
    for (int thread = 0; thread < 64; ++thread) {
      for (int kind = 0; kind < 4; ++kind) {
        const int source = expected_source(kind, thread % 32, operand, width);
        expected.push_back(in[static_cast<std::size_t>(thread / 32 * 32 + source)]);
      }
    }
    CAPTURE(width, operand);
    CHECK(device_out.download() == expected);
  }
}

}  // namespace

TEST_CASE("a barrier makes a block's writes visible to all of it, in every order") {
  const FreshEmulator fresh;
  std::vector<int> in(3 * 256);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i) * 3;
  const DeviceArray<int> device_in = on_device(in);
  const DeviceArray<int> device_out(in.size());
  int num_wrong = 0;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    emulator::set_seed(seed);
    launch(reverse_kernel, {3, 256}, nullptr, device_in.data(), device_out.data(), true);
    std::vector<int> out = device_out.download();
    for (int block = 0; block < 3; ++block) {
      std::reverse(out.begin() + block * 256, out.begin() + (block + 1) * 256);
    }
    CHECK(out == in);
    // Without the barrier a thread reads what an earlier block wrote, or nobody.
    launch(reverse_kernel, {3, 256}, nullptr, device_in.data(), device_out.data(), false);
    out = device_out.download();
    for (int block = 0; block < 3; ++block) {
      std::reverse(out.begin() + block * 256, out.begin() + (block + 1) * 256);
    }
    num_wrong += out == in ? 0 : 1;
  }
  CHECK(num_wrong == static_cast<int>(kNumSeeds));
}

TEST_CASE("barriers count threads, and not those that have left") {
  const FreshEmulator fresh;
  struct Case {
    int num_threads, num_exits, num_true;
  };
  for (const Case& c : {Case{96, 0, 96}, Case{96, 0, 0}, Case{100, 40, 17}, Case{33, 32, 1},
                        Case{1024, 1000, 24}, Case{1, 0, 1}}) {
    CAPTURE(c.num_threads, c.num_exits, c.num_true);
    const int num_left = c.num_threads - c.num_exits;
    const DeviceArray<int> device_out(static_cast<std::size_t>(c.num_threads) * 3);
    launch(predicates_kernel, {1, static_cast<unsigned>(c.num_threads)}, nullptr, device_out.data(),
           c.num_exits, c.num_true);
    const std::vector<int> out = device_out.download();
    for (int i = 0; i < c.num_threads; ++i) {
      const auto first = static_cast<std::size_t>(i) * 3;
      const std::array<int, 3> actual = {out[first], out[first + 1], out[first + 2]};
      std::array<int, 3> expected = {c.num_true, c.num_true == num_left ? 1 : 0,
                                     c.num_true > 0 ? 1 : 0};
      if (i < c.num_exits) expected = {-1, -1, -1};  // as cudaMalloc gave it
      CHECK(actual == expected);
    }
  }
}

TEST_CASE("every thread of a grid runs once, with its indices") {
  const FreshEmulator fresh;
  const dim3 grid(3, 2, 4);
  const dim3 block(5, 3, 2);
  const std::size_t num_threads = 3 * 2 * 4 * 5 * 3 * 2;
  const DeviceArray<unsigned> device_out(num_threads * 6);
  launch(indices_kernel, {grid, block}, nullptr, device_out.data());
  const std::vector<unsigned> out = device_out.download();
  std::size_t at = 0;
  for (unsigned bz = 0; bz < 4; ++bz)
    for (unsigned by = 0; by < 2; ++by)
      for (unsigned bx = 0; bx < 3; ++bx)
        for (unsigned z = 0; z < 2; ++z)
          for (unsigned y = 0; y < 3; ++y)
            for (unsigned x = 0; x < 5; ++x, at += 6) {
              const std::vector<unsigned> actual(out.begin() + static_cast<std::ptrdiff_t>(at),
                                                 out.begin() + static_cast<std::ptrdiff_t>(at) + 6);
              CHECK(actual == std::vector<unsigned>{x, y, z, bx, by, bz});
            }
}

TEST_CASE("shuffles read the lanes that the PTX ISA names") {
  const FreshEmulator fresh;
  Rng rng(5, "shuffles");
  for (int i = 0; i < 10; ++i) {
    check_shuffles<int>(rng);
    check_shuffles<unsigned>(rng);
    check_shuffles<float>(rng);
    check_shuffles<double>(rng);
    check_shuffles<long long>(rng);
  }
}

TEST_CASE("votes are of the lanes in the mask") {
  const FreshEmulator fresh;
  Rng rng(6, "votes");
  const DeviceArray<unsigned> device_out(64 * 3);
  std::vector<unsigned> cases = {0, 0xffffffffu, 0x55555555u, 0xaaaaaaaau, 1, 0x80000000u};
  for (int i = 0; i < 10; ++i) cases.push_back(static_cast<unsigned>(rng()));
  for (const unsigned predicates : cases) {
    CAPTURE(predicates);
    launch(votes_kernel, {1, 64}, nullptr, predicates, device_out.data());
    const std::vector<unsigned> out = device_out.download();
    for (std::size_t i = 0; i < 64; ++i) {
      const unsigned mask = i % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
      CHECK(out[i * 3] == (predicates & mask));
      CHECK(out[i * 3 + 1] == ((predicates & mask) != 0 ? 1u : 0u));
      CHECK(out[i * 3 + 2] == ((predicates & mask) == mask ? 1u : 0u));
    }
  }
}

TEST_CASE("lanes that need each other's writes need __syncwarp") {
  const FreshEmulator fresh;
  const DeviceArray<int> device_out(32);
  std::vector<int> expected = counted(32);
  for (int& value : expected) value = (value + 1) % 32 + 1;
  int num_wrong = 0;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    emulator::set_seed(seed);
    launch(neighbours_kernel, {1, 32}, nullptr, device_out.data(), true);
    CHECK(device_out.download() == expected);
    launch(neighbours_kernel, {1, 32}, nullptr, device_out.data(), false);
    num_wrong += device_out.download() == expected ? 0 : 1;
  }
  CHECK(num_wrong == static_cast<int>(kNumSeeds));
}

TEST_CASE("the order of blocks, warps and lanes follows from the seed") {
  std::set<std::vector<int>> block_orders;
  std::set<std::vector<int>> warp_orders;
  std::set<std::vector<int>> lane_orders;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const std::vector<int> blocks = order_of(seed, 20, 1);
    CHECK(order_of(seed, 20, 1) == blocks);
    CHECK(std::set<int>(blocks.begin(), blocks.end()).size() == 20);
    block_orders.insert(blocks);
    std::vector<int> warps = order_of(seed, 1, 256);
    CHECK(order_of(seed, 1, 256) == warps);
    for (int& thread : warps) thread /= 32;
    warps.erase(std::unique(warps.begin(), warps.end()), warps.end());
    CHECK(warps.size() == 8);  // without collectives, a warp runs to its end
    warp_orders.insert(warps);
    lane_orders.insert(order_of(seed, 1, 32));
  }
  CHECK(block_orders.size() == kNumSeeds);
  CHECK(warp_orders.size() == kNumSeeds);
  CHECK(lane_orders.size() > 2);
  CHECK(lane_orders.count(counted(32)) == 1);
  std::vector<int> reversed = counted(32);
  std::reverse(reversed.begin(), reversed.end());
  CHECK(lane_orders.count(reversed) == 1);
}

}  // namespace TEST_FILE
