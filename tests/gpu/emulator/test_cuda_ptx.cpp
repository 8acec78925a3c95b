// SPDX-License-Identifier: Apache-2.0
// The emulated instructions of gpu/kernels/common/ptx.h: fragments, loads of matrices and copies in
// the background; and the conversions of bfloat16.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "gpu/emulator/cuda_emulator.h"
#include "gpu/kernels/common/ptx.h"
#include "models/weights/float16.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/emulator/device_values.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

using Halves = std::vector<std::uint16_t>;

__device__ std::uint32_t packed(std::uint16_t low, std::uint16_t high) {
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
}

// Element by element as the PTX ISA numbers them (a0..a7, b0..b3, c0..c3), by its formulas.
// a [16][16], b [16][8] (both row-major here), d [16][8].
__global__ void mma_by_formula_kernel(const std::uint16_t* a, const std::uint16_t* b, float* d) {
  const unsigned group_id = threadIdx.x >> 2;
  const unsigned thread_in_group = threadIdx.x % 4;
  std::uint16_t a_elements[8];
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned row = i < 2 || (4 <= i && i < 6) ? group_id : group_id + 8;
    const unsigned column = thread_in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
    a_elements[i] = a[row * 16 + column];
  }
  std::uint16_t b_elements[4];
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = thread_in_group * 2 + (i & 1) + (i < 2 ? 0 : 8);
    b_elements[i] = b[row * 8 + group_id];
  }
  std::uint32_t a_registers[4];
  std::uint32_t b_registers[2];
  for (unsigned i = 0; i < 4; ++i) {
    a_registers[i] = packed(a_elements[i * 2], a_elements[i * 2 + 1]);
  }
  for (unsigned i = 0; i < 2; ++i) {
    b_registers[i] = packed(b_elements[i * 2], b_elements[i * 2 + 1]);
  }
  float c[4];
  for (unsigned i = 0; i < 4; ++i) {
    c[i] = d[(i < 2 ? group_id : group_id + 8) * 8 + thread_in_group * 2 + (i & 1)];
  }
  mma_m16n8k16(c, a_registers, b_registers);
  for (unsigned i = 0; i < 4; ++i) {
    d[(i < 2 ? group_id : group_id + 8) * 8 + thread_in_group * 2 + (i & 1)] = c[i];
  }
}

// As kernels do it: a [16][16] and b [16][16], row-major, by ldmatrix; two products for the two
// halves of b's columns. `b_is_transposed`: b is given as [column][k].
__global__ void mma_by_ldmatrix_kernel(const std::uint16_t* a, const std::uint16_t* b, float* d,
                                       bool b_is_transposed) {
  __shared__ std::uint16_t __align__(16) a_tile[16 * 16];
  __shared__ std::uint16_t __align__(16) b_tile[16 * 16];
  for (unsigned i = threadIdx.x; i < 256; i += 32) {
    a_tile[i] = a[i];
    b_tile[i] = b[i];
  }
  __syncwarp();
  const unsigned lane = threadIdx.x;
  std::uint32_t a_registers[4];
  ldmatrix_x4(a_registers, &a_tile[lane % 16 * 16 + lane / 16 * 8]);
  std::uint32_t b_registers[4];
  if (b_is_transposed) {
    // Matrices 0, 1: columns 0..7, k halves; 2, 3: columns 8..15.
    ldmatrix_x4(b_registers, &b_tile[(lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8]);
  } else {
    ldmatrix_x4_trans(b_registers, &b_tile[lane % 16 * 16 + lane / 16 * 8]);
  }
  for (unsigned half = 0; half < 2; ++half) {
    float c[4] = {};
    const std::uint32_t b_half[2] = {b_registers[half * 2], b_registers[half * 2 + 1]};
    mma_m16n8k16(c, a_registers, b_half);
    for (unsigned i = 0; i < 4; ++i) {
      d[(lane / 4 + i / 2 * 8) * 16 + half * 8 + lane % 4 * 2 + i % 2] = c[i];
    }
  }
}

// One copy for each thread, from its own place to its neighbour's.
struct CopyCase {
  bool waits = true;
  bool overwrites_source = false;  // before the wait
  bool is_valid = true;
  std::uint32_t offset_bytes = 0;  // of the source
};

__global__ void copy_kernel(std::uint32_t* in, std::uint32_t* out, CopyCase c) {
  auto* const tile = reinterpret_cast<std::uint32_t*>(dynamic_shared_memory());
  const unsigned i = threadIdx.x;
  cp_async_16(&tile[i * 4], reinterpret_cast<unsigned char*>(&in[i * 4]) + c.offset_bytes,
              c.is_valid);
  cp_async_commit();
  if (c.overwrites_source) in[i * 4] = 99;
  if (c.waits) cp_async_wait<0>();
  __syncthreads();
  out[i] = tile[(i + 1) % blockDim.x * 4];
}

// Two groups; waits for the first. The second goes to the same place if `reuses`.
__global__ void pipeline_kernel(const std::uint32_t* in, std::uint32_t* out, bool reuses) {
  auto* const tile = reinterpret_cast<std::uint32_t*>(dynamic_shared_memory());
  const unsigned i = threadIdx.x;
  cp_async_16(&tile[i * 4], &in[i * 4], true);
  cp_async_commit();
  cp_async_16(&tile[(reuses ? 0 : 128) + i * 4], &in[128 + i * 4], true);
  cp_async_commit();
  cp_async_wait<1>();
  __syncthreads();
  out[i] = tile[i * 4];
}

__global__ void shared_kernel(std::uint32_t* out, unsigned num_words) {
  auto* const words = reinterpret_cast<std::uint32_t*>(dynamic_shared_memory());
  for (unsigned i = threadIdx.x; i < num_words; i += blockDim.x) {
    out[blockIdx.x * num_words + i] = words[i];
    words[i] = 7;
  }
  if (threadIdx.x == 0 && reinterpret_cast<std::uintptr_t>(words) % 128 != 0) out[0] = 1;
}

__global__ void misaligned_row_kernel() {
  __shared__ std::uint16_t __align__(16) tile[128];
  std::uint32_t registers[4];
  ldmatrix_x4(registers, &tile[threadIdx.x == 3 ? 4 : 8]);
}

__global__ void exp2_kernel(const float* in, float* out) {
  out[threadIdx.x] = exp2_fast(in[threadIdx.x]);
}

Halves random_halves(Rng& rng, std::size_t count) {
  Halves values(count);
  for (std::uint16_t& value : values) {
    value = bf16_of_float(static_cast<float>(rng.normal(0, 1)));
  }
  return values;
}

// The sum that the emulator promises. b is [k][columns].
float expected_element(float start, const Halves& a, const Halves& b, std::size_t row,
                       std::size_t column, std::size_t num_columns) {
  float sum = start;
  for (std::size_t k = 0; k < 16; ++k) {
    const float product =
        float_of_bf16(a[row * 16 + k]) * float_of_bf16(b[k * num_columns + column]);
    sum += product;
  }
  return sum;
}

std::vector<std::uint32_t> copied(const CopyCase& c, std::uint64_t seed) {
  emulator::reset();
  emulator::set_seed(seed);
  std::vector<std::uint32_t> in(64 * 4);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint32_t>(i);
  const DeviceArray<std::uint32_t> device_in = on_device(in);
  const DeviceArray<std::uint32_t> device_out(64);
  launch(copy_kernel, {1, 64, 64 * 16}, nullptr, device_in.data(), device_out.data(), c);
  return device_out.download();
}

std::vector<std::uint32_t> expected_copies() {
  std::vector<std::uint32_t> values(64);
  for (std::uint32_t i = 0; i < 64; ++i) values[i] = (i + 1) % 64 * 4;
  return values;
}

}  // namespace

TEST_CASE("mma takes the fragments of the PTX ISA and sums by ascending k") {
  const FreshEmulator fresh;
  Rng rng(1, "mma");
  for (int round = 0; round < 20; ++round) {
    const Halves a = random_halves(rng, 256);
    const Halves b = random_halves(rng, 128);
    std::vector<float> start(128);
    for (float& value : start) value = static_cast<float>(rng.normal(0, 10));
    const DeviceArray<std::uint16_t> device_a = on_device(a);
    const DeviceArray<std::uint16_t> device_b = on_device(b);
    const DeviceArray<float> device_d = on_device(start);
    launch(mma_by_formula_kernel, {1, 32}, nullptr, device_a.data(), device_b.data(),
           device_d.data());
    std::vector<float> expected(128);
    for (std::size_t i = 0; i < 128; ++i) {
      expected[i] = expected_element(start[i], a, b, i / 8, i % 8, 8);
    }
    CHECK(device_d.download() == expected);
  }
}

TEST_CASE("ldmatrix loads what mma takes, plain and transposed") {
  const FreshEmulator fresh;
  Rng rng(2, "ldmatrix");
  for (int round = 0; round < 20; ++round) {
    const bool b_is_transposed = chance(rng, 0.5);
    const Halves a = random_halves(rng, 256);
    const Halves b = random_halves(rng, 256);
    Halves given = b;
    for (std::size_t i = 0; b_is_transposed && i < 256; ++i) given[i % 16 * 16 + i / 16] = b[i];
    const DeviceArray<std::uint16_t> device_a = on_device(a);
    const DeviceArray<std::uint16_t> device_b = on_device(given);
    const DeviceArray<float> device_d(256);
    launch(mma_by_ldmatrix_kernel, {1, 32}, nullptr, device_a.data(), device_b.data(),
           device_d.data(), b_is_transposed);
    std::vector<float> expected(256);
    for (std::size_t i = 0; i < 256; ++i) {
      expected[i] = expected_element(0, a, b, i / 16, i % 16, 16);
    }
    CHECK(device_d.download() == expected);
  }
}

TEST_CASE("ldmatrix wants aligned rows") {
  const FreshEmulator fresh;
  CHECK(run_kernel_quietly(misaligned_row_kernel, {1, 32}) == cudaErrorMisalignedAddress);
  CHECK(mentions(emulator::last_failure(), "the row of lane 3 is not 16-byte aligned"));
}

TEST_CASE("a copy in the background is there after the wait and a barrier") {
  const FreshEmulator fresh;
  int num_late = 0;
  int num_changed = 0;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    CAPTURE(seed);
    CHECK(copied({}, seed) == expected_copies());
    CHECK(copied({.waits = true, .overwrites_source = false, .is_valid = false}, seed) ==
          std::vector<std::uint32_t>(64, 0));
    // Each copy is early or late: of 64, always some are late.
    const std::vector<std::uint32_t> unwaited = copied({.waits = false}, seed);
    for (std::uint32_t i = 0; i < 64; ++i) {
      const bool is_late = unwaited[i] == 0xffffffffu;
      if (!is_late) CHECK(unwaited[i] == expected_copies()[i]);
      num_late += is_late ? 1 : 0;
    }
    for (const std::uint32_t value : copied({.waits = true, .overwrites_source = true}, seed)) {
      num_changed += value == 99 ? 1 : 0;
    }
  }
  const int half = static_cast<int>(kNumSeeds) * 32;
  CHECK(std::abs(num_late - half) < half / 4);
  CHECK(std::abs(num_changed - half) < half / 4);
}

TEST_CASE("a wait leaves the latest groups pending") {
  const FreshEmulator fresh;
  std::vector<std::uint32_t> in(256);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint32_t>(i);
  const DeviceArray<std::uint32_t> device_in = on_device(in);
  const DeviceArray<std::uint32_t> device_out(32);
  int num_overwritten = 0;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    emulator::set_seed(seed);
    const auto out_of = [&](bool reuses) {
      launch(pipeline_kernel, {1, 32, 1024}, nullptr, device_in.data(), device_out.data(), reuses);
      return device_out.download();
    };
    const std::vector<std::uint32_t> out = out_of(false);
    for (std::uint32_t i = 0; i < 32; ++i) CHECK(out[i] == i * 4);
    for (const std::uint32_t value : out_of(true)) num_overwritten += value >= 128 ? 1 : 0;
  }
  // Where both groups are early; a first group that is late undoes an early second one.
  const int quarter = static_cast<int>(kNumSeeds) * 32 / 4;
  CHECK(std::abs(num_overwritten - quarter) < quarter / 2);
}

TEST_CASE("copies in the background want aligned addresses, even where nothing is read") {
  const FreshEmulator fresh;
  const DeviceArray<std::uint32_t> in(256);
  const DeviceArray<std::uint32_t> out(32);
  for (const bool is_valid : {true, false}) {
    emulator::reset();
    const CopyCase c = {true, false, is_valid, 4};
    CHECK(run_kernel_quietly(copy_kernel, {1, 32, 512}, in.data(), out.data(), c) ==
          cudaErrorMisalignedAddress);
    CHECK(mentions(emulator::last_failure(), "cp.async at "));
  }
}

TEST_CASE("dynamic shared memory is aligned, and NaN before each block") {
  const FreshEmulator fresh;
  for (const unsigned num_words : {1u, 33u, 12288u}) {
    const DeviceArray<std::uint32_t> out(std::size_t{num_words} * 5);
    launch(shared_kernel, {5, 32, num_words * 4}, nullptr, out.data(), num_words);
    CHECK(out.download() == std::vector<std::uint32_t>(std::size_t{num_words} * 5, 0xffffffffu));
  }
}

TEST_CASE("exp2_fast has no subnormal results") {
  const FreshEmulator fresh;
  const float infinity = std::numeric_limits<float>::infinity();
  const DeviceArray<float> in =
      on_device<float>({0, 3, -infinity, -126, -127, infinity, 0.5f, -0.0f});
  const DeviceArray<float> out(8);
  launch(exp2_kernel, {1, 8}, nullptr, in.data(), out.data());
  CHECK(out.download() == std::vector<float>{1, 8, 0, 0x1p-126f, 0, infinity, std::sqrt(2.0f), 1});
}

TEST_CASE("bfloat16 is rounded to nearest even, and NaN stays NaN") {
  std::vector<std::uint32_t> wrong;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = __bfloat162float(__ushort_as_bfloat16(half));
    const std::uint16_t again = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    const bool is_right = std::isnan(value)
                              ? again == 0x7fff
                              : again == half && std::bit_cast<std::uint32_t>(value) == bits << 16;
    if (!is_right) wrong.push_back(bits);
  }
  CHECK(wrong.empty());
  const auto rounded = [](std::uint32_t bits) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(std::bit_cast<float>(bits)));
  };
  CHECK(rounded(0x3f808000) == 0x3f80);  // ties to even
  CHECK(rounded(0x3f818000) == 0x3f82);
  CHECK(rounded(0x3f808001) == 0x3f81);
  CHECK(rounded(0x3f807fff) == 0x3f80);
  CHECK(rounded(0x7f7fffff) == 0x7f80);  // beyond the largest: infinity
  CHECK(rounded(0xff7fffff) == 0xff80);
  CHECK(rounded(0x7f800001) == 0x7fff);
  CHECK(rounded(0xffc00000) == 0x7fff);

  const __nv_bfloat162 pair = __floats2bfloat162_rn(1.5f, -2.25f);
  std::uint32_t word = 0;
  std::memcpy(&word, &pair, sizeof word);
  CHECK(word == 0xc0103fc0u);
  CHECK(__low2float(pair) == 1.5f);
  CHECK(__high2float(pair) == -2.25f);
  CHECK(__bfloat1622float2(pair).y == -2.25f);
}

}  // namespace TEST_FILE
