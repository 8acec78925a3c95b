// SPDX-License-Identifier: Apache-2.0
// The emulated instructions of gpu/kernels/common/hopper_ptx.h: barriers in shared memory, boxes of
// tensors, products of warpgroups; and the kernel that is made of them under many schedules.
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/rng.h"
#include "gpu/engine/device_kv_cache.h"
#include "gpu/kernels/common/hopper_ptx.h"
#include "gpu/kernels/tensor_map.h"
#include "models/weights/float16.h"
#include "tests/catch.h"
#include "tests/gpu/attention_reference.h"
#include "tests/gpu/emulator/device_values.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr unsigned kGroupThreads = 128;

using Halves = std::vector<std::uint16_t>;

Halves random_halves(Rng& rng, std::size_t count) {
  Halves values(count);
  for (std::uint16_t& value : values) {
    value = bf16_of_float(static_cast<float>(rng.normal(0, 1)));
  }
  return values;
}

// The index of an element of a matrix that has its rows of 64 elements one behind the other, eight
// 16-byte chunks of a row in another order in each of eight rows (CUDA programming guide, "The
// swizzle modes": 128 bytes).
std::size_t swizzled_index(std::size_t row, std::size_t column) {
  const std::size_t chunk = column / 8 ^ row % 8;
  return row * 64 + chunk * 8 + column % 8;
}

struct ProductCase {
  bool is_a_in_registers = false;
  bool is_b_k_major = true;
  bool accumulates = true;
  bool is_fenced = true;
  bool waits = true;
};

// d [64][128] (+)= a [64][64] * b; both operands as copy_box leaves them, b as [n][k] if k-major,
// else as [k][n] in two parts of 64 columns. Four steps of 16.
__global__ void product_kernel(const std::uint16_t* a, const std::uint16_t* b, float* d,
                               ProductCase c) {
  unsigned char* const a_tile = swizzled_shared_memory();
  unsigned char* const b_tile = a_tile + 64 * 128;
  for (unsigned i = threadIdx.x; i < 64 * 64; i += kGroupThreads) {
    std::memcpy(a_tile + i * 2, a + i, 2);
  }
  for (unsigned i = threadIdx.x; i < 128 * 64; i += kGroupThreads) {
    std::memcpy(b_tile + i * 2, b + i, 2);
  }
  fence_async_proxy();
  __syncthreads();
  const unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const unsigned column = threadIdx.x % 4 * 2;
  const auto element = [&](unsigned n, unsigned i) -> float& {
    return d[(row + i / 2 * 8) * 128 + n * 8 + column + i % 2];
  };
  float sums[16][4];
  std::uint32_t fragments[4][4];
  for (unsigned n = 0; n < 16; ++n) {
    for (unsigned i = 0; i < 4; ++i) sums[n][i] = element(n, i);
  }
  for (unsigned step = 0; step < 4; ++step) {
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned k = step * 16 + column + i / 2 * 8;
      std::memcpy(&fragments[step][i], a_tile + swizzled_index(row + i % 2 * 8, k) * 2, 4);
    }
  }
  if (c.is_fenced) wgmma_fence(sums);
  for (unsigned step = 0; step < 4; ++step) {
    const std::uint64_t a_matrix = matrix_descriptor(shared_address(a_tile) + step * 32, 16, 1024);
    const std::uint64_t b_matrix =
        c.is_b_k_major
            ? matrix_descriptor(shared_address(b_tile) + step * 32, 16, 1024)
            : matrix_descriptor(shared_address(b_tile) + step * 16 * 128, 64 * 128, 1024);
    if (c.is_a_in_registers) {
      wgmma<128>(sums, fragments[step], b_matrix);
    } else {
      wgmma<128>(sums, a_matrix, b_matrix, c.accumulates || step > 0);
    }
  }
  wgmma_commit();
  if (c.waits) wgmma_wait<0>(sums);
  for (unsigned n = 0; n < 16; ++n) {
    for (unsigned i = 0; i < 4; ++i) element(n, i) = sums[n][i];
  }
}

// d [64][kColumns] = a [64][64] * b, b as [n][k], both as copy_box leaves them; other widths than
// product_kernel's.
template <int kColumns>
__global__ void columns_kernel(const std::uint16_t* a, const std::uint16_t* b, float* d) {
  unsigned char* const a_tile = swizzled_shared_memory();
  unsigned char* const b_tile = a_tile + 64 * 128;
  for (unsigned i = threadIdx.x; i < 64 * 64; i += kGroupThreads) {
    std::memcpy(a_tile + i * 2, a + i, 2);
  }
  for (unsigned i = threadIdx.x; i < kColumns * 64; i += kGroupThreads) {
    std::memcpy(b_tile + i * 2, b + i, 2);
  }
  fence_async_proxy();
  __syncthreads();
  float sums[kColumns / 8][4];
  wgmma_fence(sums);
  for (unsigned step = 0; step < 4; ++step) {
    wgmma<kColumns>(sums, matrix_descriptor(shared_address(a_tile) + step * 32, 16, 1024),
                    matrix_descriptor(shared_address(b_tile) + step * 32, 16, 1024), step > 0);
  }
  wgmma_commit();
  wgmma_wait<0>(sums);
  const unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  for (unsigned n = 0; n < kColumns / 8; ++n) {
    for (unsigned i = 0; i < 4; ++i) {
      d[(row + i / 2 * 8) * kColumns + n * 8 + threadIdx.x % 4 * 2 + i % 2] = sums[n][i];
    }
  }
}

// a [64][k], b [k][128], row by row, as product_kernel wants them.
Halves arranged_rows(const Halves& values, std::size_t num_rows) {
  Halves arranged(values.size());
  for (std::size_t row = 0; row < num_rows; ++row) {
    for (std::size_t k = 0; k < 64; ++k) arranged[swizzled_index(row, k)] = values[row * 64 + k];
  }
  return arranged;
}

std::vector<float> products(const Halves& a, const Halves& b, const std::vector<float>& start,
                            const ProductCase& c) {
  Halves b_tile(b.size());
  for (std::size_t k = 0; k < 64; ++k) {
    for (std::size_t n = 0; n < 128; ++n) {
      const std::size_t to =
          c.is_b_k_major ? swizzled_index(n, k) : n / 64 * 64 * 64 + swizzled_index(k, n % 64);
      b_tile[to] = b[k * 128 + n];
    }
  }
  const DeviceArray<std::uint16_t> device_a = on_device(arranged_rows(a, 64));
  const DeviceArray<std::uint16_t> device_b = on_device(b_tile);
  const DeviceArray<float> device_d = on_device(start);
  launch(product_kernel, {1, kGroupThreads, 3 * 64 * 128}, nullptr, device_a.data(),
         device_b.data(), device_d.data(), c);
  return device_d.download();
}

template <int kColumns>
void check_columns(Rng& rng) {
  static_assert(has_product(kColumns));
  const Halves a = random_halves(rng, 64 * 64);
  const Halves b = random_halves(rng, kColumns * 64);  // [n][k]
  std::vector<float> expected(64 * kColumns);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t k = 0; k < 64; ++k) {
      expected[i] +=
          float_of_bf16(a[i / kColumns * 64 + k]) * float_of_bf16(b[i % kColumns * 64 + k]);
    }
  }
  const DeviceArray<std::uint16_t> device_a = on_device(arranged_rows(a, 64));
  const DeviceArray<std::uint16_t> device_b = on_device(arranged_rows(b, kColumns));
  const DeviceArray<float> d(expected.size());
  launch(columns_kernel<kColumns>, {1, kGroupThreads, (64 + kColumns) * 128}, nullptr,
         device_a.data(), device_b.data(), d.data());
  CAPTURE(kColumns);
  CHECK(d.download() == expected);
}

// Rows of a tensor by one box, and what is in shared memory then.
__global__ void box_kernel(const __grid_constant__ KvTensors tensors, std::int32_t column,
                           std::int32_t row, std::uint16_t* out, bool is_expected) {
  unsigned char* const tile = swizzled_shared_memory();
  auto* const barrier = reinterpret_cast<SharedBarrier*>(tile + 16 * 128);
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    barrier_init_done();
    if (is_expected) barrier_expect(barrier, 16 * 128);
    copy_box(tile, tensors.keys, column, row, barrier);
    barrier_arrive(barrier);
  }
  __syncthreads();
  barrier_wait(barrier, 0);
  for (unsigned i = threadIdx.x; i < 16 * 64; i += blockDim.x) {
    std::memcpy(out + i, tile + i * 2, 2);
  }
}

struct StoreCase {
  bool commits = true;
  bool waits = true;  // before the box is written again, and at the end
};

// Stores a box of 16 rows twice by thread 0, to two places: element i is i + 1, then 2 * (i + 1).
__global__ void store_kernel(CUtensorMap tensor, std::int32_t column, std::int32_t row,
                             std::int32_t second_row, StoreCase c) {
  unsigned char* const box = swizzled_shared_memory();
  for (std::uint32_t round = 1; round <= 2; ++round) {
    for (std::uint32_t i = threadIdx.x; i < 16 * 64; i += 32) {
      const auto value = static_cast<std::uint16_t>(round * (i + 1));
      std::memcpy(box + swizzled_index(i / 64, i % 64) * 2, &value, 2);
    }
    fence_async_proxy();
    __syncwarp();
    if (threadIdx.x == 0) {
      store_box(tensor, column, round == 1 ? row : second_row, box);
      if (c.commits) stores_commit();
      if (c.waits || round == 2) stores_wait_read();
    }
    __syncwarp();
  }
}

// Warp 0 writes a value for each round when warp 1 has read the one before.
__global__ void hand_over_kernel(std::uint32_t* out, std::uint32_t num_rounds, bool is_too_many) {
  auto* const full = reinterpret_cast<SharedBarrier*>(swizzled_shared_memory());
  SharedBarrier* const empty = full + 1;
  auto* const value = reinterpret_cast<std::uint32_t*>(full + 2);
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init(empty, 32);
    barrier_init_done();
  }
  __syncthreads();
  for (std::uint32_t round = 0; round < num_rounds; ++round) {
    if (threadIdx.x < 32) {
      barrier_wait(empty, round % 2 ^ 1);
      if (threadIdx.x != 0) continue;
      *value = round;
      barrier_arrive(full);
      if (is_too_many) barrier_arrive(full);
    } else {
      barrier_wait(full, round % 2);
      out[round * 32 + threadIdx.x % 32] = *value;
      barrier_arrive(empty);
    }
  }
}

__global__ void never_full_kernel() {
  auto* const barrier = reinterpret_cast<SharedBarrier*>(swizzled_shared_memory());
  if (threadIdx.x == 0) {
    barrier_init(barrier, 2);
    barrier_arrive(barrier);
  }
  __syncthreads();
  barrier_wait(barrier, 0);
}

// Expects boxes of 256 rows; 32 of them are one byte more than a barrier can count.
__global__ void many_bytes_kernel(std::uint32_t num_boxes) {
  auto* const barrier = reinterpret_cast<SharedBarrier*>(swizzled_shared_memory());
  barrier_init(barrier, 1);
  for (std::uint32_t i = 0; i < num_boxes; ++i) barrier_expect(barrier, 256 * 128);
}

__global__ void no_barrier_kernel() {
  barrier_arrive(reinterpret_cast<SharedBarrier*>(swizzled_shared_memory()));
}

}  // namespace

TEST_CASE("wgmma multiplies what lies swizzled in shared memory or in registers") {
  const FreshEmulator fresh;
  Rng rng(1, "wgmma");
  const Halves a = random_halves(rng, 64 * 64);
  const Halves b = random_halves(rng, 64 * 128);
  std::vector<float> start(64 * 128);
  for (float& value : start) value = static_cast<float>(rng.normal(0, 10));
  const auto expected = [&](bool accumulates) {
    std::vector<float> sums = start;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (!accumulates) sums[i] = 0;
      for (std::size_t k = 0; k < 64; ++k) {
        sums[i] += float_of_bf16(a[i / 128 * 64 + k]) * float_of_bf16(b[k * 128 + i % 128]);
      }
    }
    return sums;
  };
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    emulator::set_seed(seed);
    CAPTURE(seed);
    CHECK(products(a, b, start, {}) == expected(true));
    CHECK(products(a, b, start, {.accumulates = false}) == expected(false));
    CHECK(products(a, b, start, {.is_a_in_registers = true, .is_b_k_major = false}) ==
          expected(true));
  }
}

TEST_CASE("wgmma has every width that kernels use") {
  const FreshEmulator fresh;
  Rng rng(4, "wgmma widths");
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    emulator::set_seed(seed);
    check_columns<64>(rng);
    check_columns<80>(rng);
    check_columns<96>(rng);
    check_columns<128>(rng);
    check_columns<144>(rng);
    check_columns<160>(rng);
    check_columns<192>(rng);
    check_columns<256>(rng);
  }
}

TEST_CASE("wgmma needs a fence before and a wait behind it") {
  const FreshEmulator fresh;
  const Halves ones(64 * 128, bf16_of_float(1));
  const auto launched = [&](const ProductCase& c) {
    const DeviceArray<std::uint16_t> operand = on_device(ones);
    const DeviceArray<float> d(64 * 128);
    return run_kernel_quietly(product_kernel, {1, kGroupThreads, 3 * 64 * 128}, operand.data(),
                              operand.data(), d.data(), c);
  };
  CHECK(launched({.is_fenced = false}) == cudaErrorLaunchFailure);
  CHECK(mentions(emulator::last_failure(), "without a wgmma_fence()"));
  emulator::reset();
  CHECK(launched({.waits = false}) == cudaErrorLaunchFailure);
  CHECK(mentions(emulator::last_failure(), "products of its warpgroup were in flight"));
}

TEST_CASE("A box lands swizzled, with zeros for what is outside of the tensor") {
  const FreshEmulator fresh;
  Rng rng(2, "boxes");
  constexpr std::size_t kNumRows = 48;
  Halves rows(kNumRows * 128);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint16_t>(i + 1);
  const DeviceArray<std::uint16_t> device_rows = on_device(rows);
  const auto* const keys = reinterpret_cast<const __nv_bfloat16*>(device_rows.data());
  const KvTensors tensors = make_kv_tensors(
      keys, keys,
      {.n_layers = 1, .n_kv_heads = 1, .head_dim = 128, .num_blocks = 3, .block_size = 16});
  CHECK(tensors.num_rows == 48);
  CHECK(tensors.box_rows == 16);
  for (int round = 0; round < 40; ++round) {
    const std::int32_t column = draw(rng, 0, 1) * 64;
    const std::int32_t row = draw(rng, 0, 48);
    CAPTURE(column, row);
    const DeviceArray<std::uint16_t> out(16 * 64);
    launch(box_kernel, {1, 32, 16 * 128 + 8}, nullptr, tensors, column, row, out.data(), true);
    Halves expected(16 * 64);
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < 64; ++j) {
        const std::size_t from = static_cast<std::size_t>(row) + i;
        if (from >= kNumRows) continue;
        expected[swizzled_index(i, j)] = rows[from * 128 + static_cast<std::size_t>(column) + j];
      }
    }
    CHECK(out.download() == expected);
  }
}

TEST_CASE("A stored box is read from its swizzle, and cut at the ends of the tensor") {
  const FreshEmulator fresh;
  Rng rng(3, "stores");
  constexpr std::size_t kNumRows = 40;
  constexpr std::size_t kColumns = 88;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    emulator::set_seed(seed);
    const std::size_t column = static_cast<std::size_t>(draw(rng, 0, 2)) * 32;
    const std::size_t row = static_cast<std::size_t>(draw(rng, 0, 20));
    CAPTURE(seed, column, row);
    const DeviceArray<std::uint16_t> rows = on_device(Halves(kNumRows * kColumns));
    const CUtensorMap tensor =
        row_tensor(reinterpret_cast<const __nv_bfloat16*>(rows.data()), kNumRows, kColumns, 16);
    launch(store_kernel, {1, 32, 16 * 128}, nullptr, tensor, static_cast<std::int32_t>(column),
           static_cast<std::int32_t>(row), static_cast<std::int32_t>(row + 16), StoreCase());
    Halves expected(kNumRows * kColumns);
    for (std::size_t i = 0; i < 32; ++i) {
      for (std::size_t j = 0; j < 64; ++j) {
        if (row + i >= kNumRows || column + j >= kColumns) continue;
        expected[(row + i) * kColumns + column + j] =
            static_cast<std::uint16_t>((i / 16 + 1) * (i % 16 * 64 + j + 1));
      }
    }
    CHECK(rows.download() == expected);
  }
}

TEST_CASE("A store that nobody waits for reads what came later, or says so at the end") {
  const FreshEmulator fresh;
  const auto run = [](const StoreCase& c, const DeviceArray<std::uint16_t>& rows) {
    const CUtensorMap tensor =
        row_tensor(reinterpret_cast<const __nv_bfloat16*>(rows.data()), 32, 64, 16);
    return run_kernel_quietly(store_kernel, {1, 32, 16 * 128}, tensor, 0, 0, 16, c);
  };
  int num_overwritten = 0;
  int num_failed = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    emulator::reset();
    emulator::set_seed(seed);
    const DeviceArray<std::uint16_t> rows(32 * 64);
    REQUIRE(run({.waits = false}, rows) == cudaSuccess);
    if (rows.download()[0] == 2) ++num_overwritten;
    if (run({.commits = false}, rows) != cudaSuccess) {
      ++num_failed;
      CHECK(
          mentions(emulator::last_failure(), "stores of boxes had not yet read its shared memory"));
    }
    emulator::reset();
  }
  CHECK(num_overwritten > 10);
  CHECK(num_failed > 20);
}

TEST_CASE("A barrier's phases end when arrivals and bytes are there") {
  const FreshEmulator fresh;
  constexpr std::uint32_t kNumRounds = 9;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    emulator::set_seed(seed);
    const DeviceArray<std::uint32_t> out(kNumRounds * 32);
    launch(hand_over_kernel, {1, 64, 32}, nullptr, out.data(), kNumRounds, false);
    const std::vector<std::uint32_t> values = out.download();
    for (std::uint32_t i = 0; i < values.size(); ++i) CHECK(values[i] == i / 32);
  }
  const DeviceArray<std::uint32_t> out(kNumRounds * 32);
  CHECK(run_kernel_quietly(hand_over_kernel, {1, 64, 32}, out.data(), kNumRounds, true) ==
        cudaErrorLaunchFailure);
}

TEST_CASE("Barriers that are used wrongly say so") {
  const FreshEmulator fresh;
  CHECK(run_kernel_quietly(never_full_kernel, {1, 32, 8}) == cudaErrorLaunchFailure);
  CHECK(mentions(emulator::last_failure(), "deadlock: 32 threads wait in barrier_wait"));
  emulator::reset();
  CHECK(run_kernel_quietly(no_barrier_kernel, {1, 1, 8}) == cudaErrorLaunchFailure);
  CHECK(mentions(emulator::last_failure(), "this is not a barrier"));
  emulator::reset();
  CHECK(run_kernel_quietly(many_bytes_kernel, {1, 1, 8}, 31u) == cudaSuccess);
  CHECK(run_kernel_quietly(many_bytes_kernel, {1, 1, 8}, 32u) == cudaErrorLaunchFailure);
  CHECK(mentions(emulator::last_failure(), "a barrier cannot count 1048576 bytes"));
}

TEST_CASE("Boxes that nobody expects break the barrier") {
  const FreshEmulator fresh;
  const DeviceArray<std::uint16_t> rows = on_device(Halves(48 * 128));
  const auto* const keys = reinterpret_cast<const __nv_bfloat16*>(rows.data());
  const KvTensors tensors = make_kv_tensors(
      keys, keys,
      {.n_layers = 1, .n_kv_heads = 1, .head_dim = 128, .num_blocks = 3, .block_size = 16});
  const DeviceArray<std::uint16_t> out(16 * 64);
  CHECK(run_kernel_quietly(box_kernel, {1, 32, 16 * 128 + 8}, tensors, 0, 0, out.data(), false) ==
        cudaErrorLaunchFailure);
}

// Long enough that every stage is filled many times over: a tile that is given back too early is
// overwritten under some schedule.
TEST_CASE("Attention by wgmma has the same bits under every schedule") {
  const FreshEmulator fresh;
  const std::int32_t head_dim = GENERATE(64, 256);
  Rng rng(3, "wgmma schedules");
  const AttentionShape shape = attention_shape(2, 1, head_dim);
  const SequenceContent content = random_content(rng, shape, 1100);
  const PagedProblem problem = make_paged_problem(rng, shape, 16, {{&content, 1100, 40}});
  const DevicePagedProblem device(problem);
  const DeviceArray<PrefillTile> tiles = on_device(std::vector<PrefillTile>{{0, 0}});
  std::vector<bf16> first;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    emulator::set_seed(seed);
    const DeviceArray<bf16> out = on_device(std::vector<bf16>(problem.queries.size(), bf16_nan()));
    launch_wgmma_attention(device.prefill_args(shape, tiles, out), {}, device.tensors(shape),
                           nullptr);
    const std::vector<bf16> rows = out.download();
    if (first.empty()) first = rows;
    CAPTURE(head_dim, seed);
    CHECK(first_difference(rows, first) == -1);
  }
}

}  // namespace TEST_FILE
