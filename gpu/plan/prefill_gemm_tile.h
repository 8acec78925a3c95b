// How launch_prefill_gemm (gpu/kernels/kernels.h) divides a product.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace metronome {

// What one CTA computes at a time.
struct PrefillGemmTile {
  std::int32_t columns = 0;  // rows of the weights; where they have gates, as many gates as ups
  std::int32_t cluster = 1;  // CTAs, one tile below the other, that load their weights together
  std::int32_t rows = 128;   // tokens
  bool operator==(const PrefillGemmTile&) const = default;
};

// The rows there is code for, and the columns (has_product, gpu/kernels/common/hopper_ptx.h).
constexpr std::array<std::int32_t, 2> kPrefillGemmRows = {64, 128};
constexpr std::array<std::int32_t, 9> kPrefillGemmColumns = {32,  64,  80,  96, 128,
                                                             144, 160, 192, 256};

// All of them, by rows, then by columns, then by cluster, of which there is one where there is one
// processor.
std::vector<PrefillGemmTile> prefill_gemm_tiles(std::int32_t num_processors);

// A product of num_tokens rows with n rows of k weights each.
struct PrefillGemmSize {
  std::int64_t num_tokens = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool has_gates = false;  // n are gates and ups
};

// Clock cycles that a product takes in such tiles, as far as tiles decide: rounds of one tile for
// each processor, in each the longest of the multiplications (1,600 a cycle), what is read through
// the L2 cache (36 bytes a cycle and processor, 64 where few read) and what goes through shared
// memory (115 bytes a cycle); a cycle for 48 sums to be stored, for 16 where they have gates, and
// 2,000 for the product. Requires at least tile.cluster processors.
double prefill_gemm_cycles(const PrefillGemmSize& size, const PrefillGemmTile& tile,
                           std::int32_t num_processors);

// The tile of the fewest cycles, of those whose clusters there are processors for; of equal ones
// that of most rows, then of most columns, then that of a cluster. Requires positive sizes and
// num_processors.
PrefillGemmTile choose_prefill_gemm_tile(const PrefillGemmSize& size, std::int32_t num_processors);

}  // namespace metronome
