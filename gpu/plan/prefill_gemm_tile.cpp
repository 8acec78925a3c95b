// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/prefill_gemm_tile.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/types.h"

namespace metronome {
namespace {

// Measured for similar kernels on 132 SMs at 1,755 MHz (P. Shankhdhar, "Outperforming cuBLAS on
// H100"): 741 of 764 TFLOP/s. At 704 TFLOP/s, tiles of 128 x 256 without clusters read 8.3 TB/s.
constexpr double kProductsPerCycle = 1600;
constexpr double kL2BytesPerCycle = 36;
// Bytes that one SM may read from the L2 cache if other SMs read less: 64 a cycle, assumed. Shared
// memory: nine tenths of its 128 bytes a cycle.
constexpr double kMostL2BytesPerCycle = 64;
constexpr double kSharedBytesPerCycle = 115;
// Assumed. Stored: sums are rounded and copied to shared memory, 64 a cycle at most, while the SM
// multiplies nothing. Start: the time of the first loads.
constexpr double kStoredPerCycle = 48;
// A gate needs two special functions; an SM computes 16 a cycle. One of two sums is a gate.
constexpr double kGatedPerCycle = 16;
constexpr double kStartCycles = 2000;

// Cycles of a tile for each element of k. Inputs and weights are copied to shared memory. wgmma
// reads both from there for every 64 rows.
double cycles_of_k(const PrefillGemmSize& size, const PrefillGemmTile& tile,
                   double l2_bytes_per_cycle) {
  const double rows = tile.rows;
  const double columns = tile.columns;
  const double read =
      2 * (std::min(rows, static_cast<double>(size.num_tokens)) + columns / tile.cluster);
  const double shared = 2 * (rows + columns) + rows / 64 * 2 * (64 + columns);
  return std::max({rows * columns / kProductsPerCycle, read / l2_bytes_per_cycle,
                   shared / kSharedBytesPerCycle});
}

}  // namespace

double prefill_gemm_cycles(const PrefillGemmSize& size, const PrefillGemmTile& tile,
                           std::int32_t num_processors) {
  METRONOME_CHECK(tile.cluster <= num_processors, "a cluster's CTAs run at the same time");
  const std::int64_t clusters =
      ceil_div(ceil_div(size.num_tokens, tile.rows), tile.cluster) * ceil_div(size.n, tile.columns);
  const std::int64_t at_once = num_processors / tile.cluster;
  const auto rounds = static_cast<double>(ceil_div(clusters, at_once));
  const auto num_busy = static_cast<double>(std::min(clusters, at_once) * tile.cluster);
  const double l2 = std::min(kMostL2BytesPerCycle, kL2BytesPerCycle * num_processors / num_busy);
  const double stored = static_cast<double>(tile.rows) * tile.columns /
                        (size.has_gates ? kGatedPerCycle : kStoredPerCycle);
  return rounds * (static_cast<double>(size.k) * cycles_of_k(size, tile, l2) + stored) +
         kStartCycles;
}

std::vector<PrefillGemmTile> prefill_gemm_tiles(std::int32_t num_processors) {
  std::vector<PrefillGemmTile> tiles;
  for (const std::int32_t rows : kPrefillGemmRows) {
    for (const std::int32_t columns : kPrefillGemmColumns) {
      for (const std::int32_t cluster : {1, 2}) {
        if (cluster <= num_processors) tiles.push_back({columns, cluster, rows});
      }
    }
  }
  return tiles;
}

PrefillGemmTile choose_prefill_gemm_tile(const PrefillGemmSize& size, std::int32_t num_processors) {
  METRONOME_CHECK(size.num_tokens > 0 && size.n > 0 && size.k > 0 && num_processors > 0,
                  "a product of something, by some processor");
  PrefillGemmTile best;
  double least = 0;
  for (const PrefillGemmTile& tile : prefill_gemm_tiles(num_processors)) {
    const double cycles = prefill_gemm_cycles(size, tile, num_processors);
    if (best.columns != 0 && cycles > least) continue;
    best = tile;
    least = cycles;
  }
  return best;
}

}  // namespace metronome
