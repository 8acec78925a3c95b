// Choosing algorithms of matrix products by timing them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/gemm_library.h"

namespace metronome {

// Row counts that have an algorithm of their own: 16, 32, 48, 64, 96, 128, 192, ... up to the first
// that is not less than max_rows. A product takes that of the smallest not less than its rows.
std::vector<std::int64_t> gemm_buckets(std::int64_t max_rows);

// Whether the algorithm runs for the fewest and the most rows of a bucket.
bool can_run_bucket(const GemmLibrary& library, GemmProblem& problem, GemmMode mode,
                    const std::vector<std::int64_t>& buckets, std::size_t bucket,
                    const GemmAlgorithm& algorithm);

struct GemmChoices {
  std::vector<GemmChoice> fastest;    // [bucket]
  std::vector<GemmChoice> invariant;  // [bucket]; empty where there are none
  std::string invariant_fault;        // why then
};

// Times what cuBLASLt proposes, on a stream of its own; returns when the device is done. All of
// `invariant` are of one algorithm id and gave the same bits for the same rows. Requires
// problem.max_rows() == buckets.back(). Throws CudaError where no proposal serves at all.
GemmChoices choose_gemms(const GemmLibrary& library, GemmProblem& problem,
                         const std::vector<std::int64_t>& buckets);

}  // namespace metronome
