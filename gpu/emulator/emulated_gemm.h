// SPDX-License-Identifier: Apache-2.0
// The algorithms of the emulated cuBLASLt in the order of proposals. The first ones are traps for a
// caller that needs one order of summation.
#pragma once

#include <array>
#include <cstdint>

namespace metronome::emulator {

enum GemmAlgorithmBit : std::uint32_t {
  // Algo 66, sum over k split in four. The parts are added in the type of the output, or in float.
  kSplitInOutputType = 1,
  kSplitInFloat = 2,
  kThin = 4,         // algo 13, up to 16 rows: every eighth product, then the eight sums
  kInterleaved = 8,  // algo 24, any number of rows: even products, then odd ones
  kSliced = 16,      // algo 66, up to 64 rows: each half of k; only its bits show it
  // Algo 66, one float accumulator that runs over k in order: a tile for up to 112 rows, and one
  // for any number. Up to 16 rows, these are proposed only if the caller asks for algo 66. For 17
  // to 32 rows they are never proposed.
  kSmallTile = 32,
  kLargeTile = 64,
  kAllGemmAlgorithms = 127,
  // Not in kAllGemmAlgorithms: algo 24. The first sixteen rows are summed in order, later rows by
  // halves of k, each rounded to bfloat16. A comparison of a few rows cannot detect it.
  kUneven = 128
};

// Limits the algorithms that the library proposes and runs. Initially kAllGemmAlgorithms.
void set_gemm_algorithms(std::uint32_t bits);

// The cublasLtMatmulAlgo_t of an algorithm.
std::array<std::uint64_t, 8> gemm_algorithm_words(GemmAlgorithmBit algorithm);

}  // namespace metronome::emulator
