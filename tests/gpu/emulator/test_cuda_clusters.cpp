// SPDX-License-Identifier: Apache-2.0
// Clusters of blocks in the emulator: the blocks of one run together, and reach each other's
// barriers and shared memory. A kernel's faults are looked for over several seeds, as one
// order may hide it.
#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "gpu/kernels/common/hopper_ptx.h"
#include "tests/catch.h"
#include "tests/gpu/emulator/device_values.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr std::uint32_t kBoxRows = 8;
constexpr std::uint32_t kBoxBytes = kBoxRows * 128;

using Halves = std::vector<std::uint16_t>;

__global__ void ranks_kernel(std::uint32_t* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  out[block] = cluster_rank();
}

// Every thread tells a number to the one at its place in the next block of the cluster. The first
// warps of the first block leave before.
__global__ void pass_on_kernel(unsigned* values, unsigned* out, unsigned num_exits, bool has_sync) {
  const unsigned cluster = gridDim.x;
  const unsigned rank = cluster_rank();
  if (rank == 0 && threadIdx.x < num_exits) return;
  values[rank * blockDim.x + threadIdx.x] = rank * 10000 + threadIdx.x;
  if (has_sync) cluster_sync();
  out[rank * blockDim.x + threadIdx.x] =
      values[(rank + cluster - 1) % cluster * blockDim.x + threadIdx.x];
}

// Each block turns its own numbers round in its own shared memory, rank + 1 times.
__global__ void own_memory_kernel(unsigned* out, int* counts) {
  auto* const mine = reinterpret_cast<unsigned*>(dynamic_shared_memory());
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned value = thread;
  for (unsigned i = 0; i <= cluster_rank(); ++i) {
    mine[threadIdx.x] = value;
    counts[thread] = __syncthreads_count(1);
    value = mine[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
  }
  out[thread] = value;
}

__global__ void lost_lane_kernel() {
  if (threadIdx.x == 5) return;
  cluster_sync();
}

__global__ void lost_block_kernel() {
  if (cluster_rank() == 1) {
    barrier_init(reinterpret_cast<SharedBarrier*>(swizzled_shared_memory()), 1);
    barrier_wait(reinterpret_cast<SharedBarrier*>(swizzled_shared_memory()), 0);
  }
  cluster_sync();
}

__global__ void everybody_kernel(int* num_here, int* num_seen) {
  atomicAdd(num_here, 1);
  cluster_sync();
  atomicAdd(num_seen, *num_here == 8 * 1024 ? 1 : 0);
}

// A tensor of rows of 64 elements, for boxes of kBoxRows.
struct alignas(64) BoxTensor {
  CUtensorMap map;
};

BoxTensor box_tensor(const DeviceArray<std::uint16_t>& rows, std::size_t num_rows) {
  BoxTensor tensor = {};
  const cuuint64_t dimensions[2] = {64, num_rows};
  const cuuint64_t strides[1] = {128};
  const cuuint32_t box[2] = {64, kBoxRows};
  const cuuint32_t steps[2] = {1, 1};
  REQUIRE(cuTensorMapEncodeTiled(&tensor.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
                                 const_cast<std::uint16_t*>(rows.data()), dimensions, strides, box,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return tensor;
}

constexpr std::uint32_t kStages = 2;
constexpr std::uint32_t kRounds = 9;
constexpr unsigned kConsumerWarps = 2;
constexpr unsigned kRingThreads = 32 * (1 + kConsumerWarps);

// Faults that a ring may have.
struct RingCase {
  bool releases_all = true;  // stages of all blocks, not only of its own
  bool has_first_sync = true;
  bool has_last_sync = true;
  std::uint32_t expected_boxes = 0;  // of a round; 0: as many as come
};

struct Ring {
  unsigned char* stages;  // [kStages][cluster][kBoxBytes]
  SharedBarrier* full;    // [kStages]
  SharedBarrier* empty;   // [kStages]
  std::uint32_t cluster;

  explicit Ring(std::uint32_t size)
      : stages(swizzled_shared_memory()),
        full(reinterpret_cast<SharedBarrier*>(stages + kStages * size * kBoxBytes)),
        empty(full + kStages),
        cluster(size) {}
  unsigned char* stage(std::uint32_t round) const {
    return stages + round % kStages * cluster * kBoxBytes;
  }
};

std::size_t ring_bytes(std::uint32_t cluster) {
  return kStages * (cluster * kBoxBytes + 2 * sizeof(SharedBarrier));
}

// Sends this block's box of each round to all blocks.
__device__ void load_rounds(const Ring& ring, const BoxTensor& tensor, const RingCase& c) {
  const auto all = static_cast<std::uint16_t>((1u << ring.cluster) - 1);
  const std::uint32_t rank = cluster_rank();
  const std::uint32_t boxes = c.expected_boxes != 0 ? c.expected_boxes : ring.cluster;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    SharedBarrier* const full = ring.full + round % kStages;
    barrier_wait(ring.empty + round % kStages, (round / kStages % 2) ^ 1);
    barrier_expect(full, boxes * kBoxBytes);
    barrier_arrive(full);
    const auto row = static_cast<std::int32_t>((round * ring.cluster + rank) * kBoxRows);
    copy_box_to(all, ring.stage(round) + rank * kBoxBytes, tensor.map, 0, row, full);
  }
}

// Writes down what came in each round, as it lies in shared memory.
__device__ void consume_rounds(const Ring& ring, std::uint16_t* out, const RingCase& c) {
  const unsigned thread = threadIdx.x - 32;
  const std::uint32_t num_elements = ring.cluster * kBoxBytes / 2;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    barrier_wait(ring.full + round % kStages, round / kStages % 2);
    std::uint16_t* const to = out + (blockIdx.x * kRounds + round) * num_elements;
    for (unsigned i = thread; i < num_elements; i += kRingThreads - 32) {
      std::memcpy(to + i, ring.stage(round) + i * 2, 2);
    }
    __syncwarp();
    SharedBarrier* const empty = ring.empty + round % kStages;
    if (c.releases_all && thread % 32 < ring.cluster) barrier_arrive_at(empty, thread % 32);
    if (!c.releases_all && thread % 32 == 0) barrier_arrive(empty);
  }
}

// One thread of each block loads, the other warps consume.
__global__ void ring_kernel(const __grid_constant__ BoxTensor tensor, std::uint16_t* out,
                            std::uint32_t cluster, RingCase c) {
  const Ring ring(cluster);
  if (threadIdx.x == 0) {
    for (std::uint32_t i = 0; i < kStages; ++i) {
      barrier_init(ring.full + i, 1);
      barrier_init(ring.empty + i, kConsumerWarps * (c.releases_all ? cluster : 1));
    }
    barrier_init_done();
  }
  __syncthreads();
  if (c.has_first_sync) cluster_sync();
  if (threadIdx.x == 0) load_rounds(ring, tensor, c);
  if (threadIdx.x >= 32) consume_rounds(ring, out, c);
  if (c.has_last_sync) cluster_sync();
}

// Launches of the ring over seeds: how many went wrong, and how.
struct RingResult {
  int num_wrong = 0;  // ended well, with other numbers
  int num_failed = 0;
  std::string failures;
};

RingResult run_rings(std::uint32_t cluster, std::uint64_t num_seeds, const RingCase& c = {}) {
  constexpr std::uint32_t kClusters = 2;
  const std::size_t num_rows = std::size_t{kRounds} * cluster * kBoxRows;
  Rng rng(cluster, "ring");
  Halves rows(num_rows * 64);
  for (std::uint16_t& value : rows) value = static_cast<std::uint16_t>(rng());
  Halves round_rows(rows.size());  // chunk i of row r is at i ^ r % 8
  for (std::size_t i = 0; i < rows.size(); ++i) {
    round_rows[i / 64 * 64 + (i / 8 % 8 ^ i / 64 % 8) * 8 + i % 8] = rows[i];
  }
  Halves expected;
  for (std::uint32_t block = 0; block < kClusters * cluster; ++block) {
    expected.insert(expected.end(), round_rows.begin(), round_rows.end());
  }
  RingResult result;
  for (std::uint64_t seed = 0; seed < num_seeds; ++seed) {
    emulator::reset();
    emulator::set_seed(seed);
    const DeviceArray<std::uint16_t> device_rows = on_device(rows);
    const BoxTensor tensor = box_tensor(device_rows, num_rows);
    const DeviceArray<std::uint16_t> out(expected.size());
    const LaunchShape shape = {kClusters * cluster, kRingThreads, ring_bytes(cluster), cluster};
    if (run_kernel_quietly(ring_kernel, shape, tensor, out.data(), cluster, c) != cudaSuccess) {
      ++result.num_failed;
      result.failures += std::string(emulator::last_failure()) + "\n";
      emulator::reset();
    } else if (out.download() != expected) {
      ++result.num_wrong;
    }
  }
  return result;
}

// Rank 1 sends a box to rank 0, which expects it as late as can be.
struct EarlyCase {
  bool is_expected = true;
  bool arrives = true;
};

__global__ void early_box_kernel(const __grid_constant__ BoxTensor tensor, EarlyCase c) {
  unsigned char* const box = swizzled_shared_memory();
  auto* const barrier = reinterpret_cast<SharedBarrier*>(box + kBoxBytes);
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    barrier_init_done();
  }
  cluster_sync();
  if (cluster_rank() == 1 && threadIdx.x == 0) copy_box_to(1, box, tensor.map, 0, 0, barrier);
  cluster_sync();
  if (cluster_rank() == 0) {
    if (threadIdx.x == 0 && c.is_expected) barrier_expect(barrier, kBoxBytes);
    if (threadIdx.x == 0 && c.arrives) barrier_arrive(barrier);
    __syncwarp();
    if (c.arrives) barrier_wait(barrier, 0);
  }
  cluster_sync();
}

// Reaches for what is not there.
enum class Reach { RankBeyond, BoxBeyond, OtherMemory, Ended, BoxToEnded };

__global__ void reach_kernel(const __grid_constant__ BoxTensor tensor, Reach reach) {
  unsigned char* const box = swizzled_shared_memory();
  auto* const barrier = reinterpret_cast<SharedBarrier*>(box + kBoxBytes);
  SharedBarrier elsewhere = 0;
  barrier_init(barrier, 1);
  barrier_init(&elsewhere, 1);
  cluster_sync();
  const bool ends = reach == Reach::Ended || reach == Reach::BoxToEnded;
  if (cluster_rank() == 1 && !ends) cluster_sync();
  if (cluster_rank() == 1) return;
  switch (reach) {
    case Reach::RankBeyond: barrier_arrive_at(barrier, 2); break;
    case Reach::BoxBeyond: copy_box_to(4, box, tensor.map, 0, 0, barrier); break;
    case Reach::OtherMemory: barrier_arrive_at(&elsewhere, 1); break;
    case Reach::Ended:
    case Reach::BoxToEnded:
      cluster_sync();  // the only one left, as the other has ended
      if (reach == Reach::Ended) barrier_arrive_at(barrier, 1);
      if (reach == Reach::BoxToEnded) copy_box_to(2, box, tensor.map, 0, 0, barrier);
  }
}

__global__ void nothing_kernel() {}

cudaError_t cluster_status(dim3 grid, dim3 cluster) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster.x;
  attribute.val.clusterDim.y = cluster.y;
  attribute.val.clusterDim.z = cluster.z;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = 32;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, nothing_kernel);
}

}  // namespace

TEST_CASE("blocks have their rank in the cluster, 0 without one") {
  const FreshEmulator fresh;
  for (const unsigned cluster : {1u, 2u, 3u, 8u}) {
    const unsigned width = cluster * 3;
    const DeviceArray<std::uint32_t> out(width * 2 * 2);
    launch(ranks_kernel, {dim3(width, 2, 2), 1, 0, cluster}, nullptr, out.data());
    const std::vector<std::uint32_t> ranks = out.download();
    CAPTURE(cluster);
    for (std::size_t i = 0; i < ranks.size(); ++i) CHECK(ranks[i] == i % width % cluster);
  }
}

TEST_CASE("cluster_sync makes the writes of all its blocks seen, in every order") {
  const FreshEmulator fresh;
  constexpr unsigned kCluster = 4;
  constexpr unsigned kThreads = 80;
  int num_wrong = 0;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    emulator::set_seed(seed);
    for (const unsigned num_exits : {0u, 64u}) {
      for (const bool has_sync : {true, false}) {
        const DeviceArray<unsigned> values(kCluster * kThreads);
        const DeviceArray<unsigned> out(kCluster * kThreads);
        launch(pass_on_kernel, {kCluster, kThreads, 0, kCluster}, nullptr, values.data(),
               out.data(), num_exits, has_sync);
        std::vector<unsigned> expected;
        for (unsigned i = 0; i < kCluster * kThreads; ++i) {
          const unsigned from = (i / kThreads + kCluster - 1) % kCluster;
          const bool is_told = i >= num_exits && (from != 0 || i % kThreads >= num_exits);
          expected.push_back(is_told ? from * 10000 + i % kThreads : 0xffffffffu);
        }
        CAPTURE(seed, num_exits);
        if (has_sync) {
          CHECK(out.download() == expected);
        } else {
          num_wrong += out.download() == expected ? 0 : 1;
        }
      }
    }
  }
  CHECK(num_wrong == static_cast<int>(kNumSeeds) * 2);
}

TEST_CASE("blocks of a cluster have barriers and shared memory of their own") {
  const FreshEmulator fresh;
  constexpr unsigned kThreads = 96;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    emulator::set_seed(seed);
    const DeviceArray<unsigned> out(6 * kThreads);
    const DeviceArray<int> counts(6 * kThreads);
    launch(own_memory_kernel, {6, kThreads, kThreads * sizeof(unsigned), 3}, nullptr, out.data(),
           counts.data());
    std::vector<unsigned> expected;
    for (unsigned i = 0; i < 6 * kThreads; ++i) {
      const bool is_turned = i / kThreads % 3 % 2 == 0;  // an odd number of times
      const unsigned place = i % kThreads;
      expected.push_back(i / kThreads * kThreads + (is_turned ? kThreads - 1 - place : place));
    }
    CHECK(out.download() == expected);
    CHECK(counts.download() == std::vector<int>(6 * kThreads, static_cast<int>(kThreads)));
  }
}

TEST_CASE("a cluster may have eight blocks of 1,024 threads") {
  const FreshEmulator fresh;
  const DeviceArray<int> num_here = on_device<int>({0});
  const DeviceArray<int> num_seen = on_device<int>({0});
  launch(everybody_kernel, {8, 1024, 0, 8}, nullptr, num_here.data(), num_seen.data());
  CHECK(num_seen.download() == std::vector<int>{8 * 1024});
}

TEST_CASE("a cluster that waits for ever says which block's threads wait where") {
  const FreshEmulator fresh;
  CHECK(run_kernel_quietly(lost_lane_kernel, {2, 64, 0, 2}) == cudaErrorLaunchFailure);
  const std::string lane = emulator::last_failure();
  CAPTURE(lane);
  CHECK(mentions(lane, "block 64x1x1, clusters of 2, 0 bytes"));
  CHECK(mentions(lane, "deadlock: 2 threads have exited, the first is (5,0,0) of block (0,0,0)"));
  CHECK(mentions(lane, "62 threads wait in cluster_sync at "));
  CHECK(mentions(lane, "with mask 0xffffffff"));
  emulator::reset();
  CHECK(run_kernel_quietly(lost_block_kernel, {2, 1, 8, 2}) == cudaErrorLaunchFailure);
  const std::string block = emulator::last_failure();
  CAPTURE(block);
  CHECK(mentions(block, "1 threads wait in barrier_wait at "));
  CHECK(mentions(block, "the first is (0,0,0) of block (1,0,0)"));
}

TEST_CASE("blocks fill each other's stages in a ring, in every order") {
  const FreshEmulator fresh;
  const std::uint32_t cluster = GENERATE(1u, 2u, 4u);
  const RingResult result = run_rings(cluster, 60);
  CAPTURE(cluster, result.failures);
  CHECK(result.num_failed == 0);
  CHECK(result.num_wrong == 0);
}

TEST_CASE("a ring that releases only its own block's stages is found out") {
  const FreshEmulator fresh;
  const RingResult result = run_rings(2, 60, {.releases_all = false});
  CAPTURE(result.failures);
  CHECK(result.num_failed + result.num_wrong > 20);
}

TEST_CASE("a ring whose barriers the others do not wait for is found out") {
  const FreshEmulator fresh;
  const RingResult result = run_rings(2, 60, {.has_first_sync = false});
  CHECK(result.num_failed > 5);
  CHECK(mentions(result.failures, "this is not a barrier"));
}

TEST_CASE("a ring whose blocks do not end together is found out") {
  const FreshEmulator fresh;
  const RingResult result = run_rings(2, 60, {.has_last_sync = false});
  CHECK(result.num_failed > 20);
  CHECK(mentions(result.failures, "barrier_arrive_at"));
  CHECK(mentions(result.failures, "has ended"));
}

TEST_CASE("a ring that expects fewer bytes than come is found out") {
  const FreshEmulator fresh;
  const RingResult result = run_rings(2, 60, {.expected_boxes = 1});
  CAPTURE(result.failures);
  CHECK(result.num_failed + result.num_wrong == 60);
}

TEST_CASE("bytes may come before they are expected, but somebody has to expect them") {
  const FreshEmulator fresh;
  const LaunchShape shape = {2, 32, kBoxBytes + sizeof(SharedBarrier), 2};
  std::string failures;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto status = [&](const EarlyCase& c) {
      emulator::reset();
      emulator::set_seed(seed);
      const DeviceArray<std::uint16_t> rows = on_device(Halves(kBoxRows * 64));
      const cudaError_t error =
          run_kernel_quietly(early_box_kernel, shape, box_tensor(rows, kBoxRows), c);
      failures += std::string(emulator::last_failure()) + "\n";
      emulator::reset();
      return error;
    };
    CAPTURE(seed, failures);
    CHECK(status({}) == cudaSuccess);
    CHECK(status({.is_expected = false}) == cudaErrorLaunchFailure);
    CHECK(status({.is_expected = false, .arrives = false}) == cudaErrorLaunchFailure);
  }
  CHECK(mentions(failures, "and more bytes (1024) than expected"));
  CHECK(mentions(failures, "without expecting 1024 of the bytes"));
  CHECK(mentions(failures, "ended while 1 copies of boxes to it were in flight"));
}

TEST_CASE("what another block does not have cannot be reached") {
  const FreshEmulator fresh;
  const auto failure = [](Reach reach) {
    emulator::reset();
    const DeviceArray<std::uint16_t> rows = on_device(Halves(kBoxRows * 64));
    const LaunchShape shape = {2, 1, kBoxBytes + sizeof(SharedBarrier), 2};
    CHECK(run_kernel_quietly(reach_kernel, shape, box_tensor(rows, kBoxRows), reach) ==
          cudaErrorLaunchFailure);
    std::string text = emulator::last_failure();
    emulator::reset();
    return text;
  };
  CHECK(mentions(failure(Reach::RankBeyond), ": no rank 2 in a cluster of 2"));
  CHECK(mentions(failure(Reach::BoxBeyond), ": no rank 2 in a cluster of 2"));
  CHECK(mentions(failure(Reach::OtherMemory), ": not in the dynamic shared memory"));
  CHECK(mentions(failure(Reach::Ended), ": the block of rank 1 has ended"));
  CHECK(mentions(failure(Reach::BoxToEnded), ": the block of rank 1 has ended"));
}

TEST_CASE("clusters have the limits of a GPU") {
  const FreshEmulator fresh;
  CHECK(cluster_status(16, 8) == cudaSuccess);
  CHECK(cluster_status(dim3(6, 5), 3) == cudaSuccess);
  CHECK(cluster_status(16, 16) == cudaErrorInvalidClusterSize);
  CHECK(cluster_status(6, 4) == cudaErrorInvalidClusterSize);
  CHECK(cluster_status(6, dim3(0, 1, 1)) == cudaErrorInvalidClusterSize);
  CHECK(cluster_status(dim3(2, 2), dim3(1, 2)) == cudaErrorNotSupported);
  CHECK(cluster_status(dim3(2, 1, 2), dim3(1, 1, 2)) == cudaErrorNotSupported);
  emulator::set_compute_capability(8, 9);
  CHECK(cluster_status(16, 8) == cudaErrorNotSupported);
  CHECK_THROWS_AS(launch(nothing_kernel, {2, 32, 0, 2}, nullptr), CudaError);
  CHECK(emulator::num_launches_of(nothing_kernel) == 2);
}

}  // namespace TEST_FILE
