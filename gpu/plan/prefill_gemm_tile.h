// SPDX-License-Identifier: Apache-2.0
// How launch_prefill_gemm (gpu/kernels/kernels.h) divides a product.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace metronome {

// The part of a product that one CTA computes at a time.
struct PrefillGemmTile {
  std::int32_t columns = 0;  // rows of the weights; with gates, half are gates, half ups
  std::int32_t cluster = 1;  // CTAs of consecutive row tiles that share the loads of weights
  std::int32_t rows = 128;   // tokens
  bool operator==(const PrefillGemmTile&) const = default;
};

// The supported rows and columns (has_product, gpu/kernels/common/hopper_ptx.h).
constexpr std::array<std::int32_t, 2> kPrefillGemmRows = {64, 128};
constexpr std::array<std::int32_t, 9> kPrefillGemmColumns = {32,  64,  80,  96, 128,
                                                             144, 160, 192, 256};

// All tiles, sorted by rows, then columns, then cluster. Clusters have at most num_processors CTAs.
std::vector<PrefillGemmTile> prefill_gemm_tiles(std::int32_t num_processors);

// A product of num_tokens rows with n rows of k weights each.
struct PrefillGemmSize {
  std::int64_t num_tokens = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool has_gates = false;  // n includes gates and ups
};

// Predicted clock cycles of a product with this tile. Each SM computes one tile in a round. A round
// takes the longest of three: multiplications (1,600 a cycle), reads through the L2 cache (36 bytes
// a cycle and SM, 64 if few SMs read), and shared memory (115 bytes a cycle). Storing takes a cycle
// for 48 sums, or for 16 with gates. The product takes another 2,000. Requires at least
// tile.cluster SMs.
double prefill_gemm_cycles(const PrefillGemmSize& size, const PrefillGemmTile& tile,
                           std::int32_t num_processors);

// The tile of the fewest cycles whose cluster fits num_processors. Ties go to more rows, then more
// columns, then the larger cluster. Requires positive sizes and num_processors.
PrefillGemmTile choose_prefill_gemm_tile(const PrefillGemmSize& size, std::int32_t num_processors);

}  // namespace metronome
