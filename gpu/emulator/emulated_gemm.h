// The algorithms of the emulated cuBLASLt, as proposed: what comes first is a trap for a caller in
// need of one order of summation.
#pragma once

#include <array>
#include <cstdint>

namespace metronome::emulator {

enum GemmAlgorithmBit : std::uint32_t {
  // Algo 66, the sum over k split in four; the parts are added in the type of the output, or float.
  kSplitInOutputType = 1,
  kSplitInFloat = 2,
  kThin = 4,         // algo 13, up to 16 rows: every eighth product, then the eight sums
  kInterleaved = 8,  // algo 24, for any number of rows: the even products, then the odd ones
  kSliced = 16,      // algo 66, up to 64 rows: each half of k, which only its bits betray
  // Algo 66, one float accumulator that runs over k in order: a tile for up to 112 rows, and one
  // for any number. Up to 16 rows these are proposed only to those who ask for algo 66, for 17 to
  // 32
  // rows to nobody.
  kSmallTile = 32,
  kLargeTile = 64,
  kAllGemmAlgorithms = 127,
  // Not among all: algo 24, in order for the first sixteen rows, and by halves of k behind them,
  // each rounded to bfloat16. No comparison of a few rows finds that out.
  kUneven = 128
};

// The library proposes and runs only these, all unless set.
void set_gemm_algorithms(std::uint32_t bits);

// The cublasLtMatmulAlgo_t of one of them.
std::array<std::uint64_t, 8> gemm_algorithm_words(GemmAlgorithmBit algorithm);

}  // namespace metronome::emulator
