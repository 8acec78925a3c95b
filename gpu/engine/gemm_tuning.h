// Choosing algorithms of matrix products by timing them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/engine/gemm_library.h"

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

// For people who look for why a row's bits depend on its batch. Lists the groups of algorithms that
// mode Invariant allows: those of one id that gave the same bits. Every group has the row counts
// that it serves; every bucket has its groups with their sizes, and what `chosen` ([bucket], or
// empty) gives for the fewest and the most rows. Whatever cuBLASLt proposes for one bucket is run
// in all, and nothing is timed. `poll` is called now and then. Throws CudaError.
std::string describe_invariant_gemms(const GemmLibrary& library, GemmProblem& problem,
                                     const std::vector<std::int64_t>& buckets,
                                     const std::vector<GemmAlgorithm>& chosen,
                                     const std::function<void()>& poll);

// The fastest of what cuBLASLt proposes in mode Fastest for exactly this many rows. Times them as
// choose_gemms() does. Throws CudaError where no proposal serves.
GemmChoice fastest_gemm(const GemmLibrary& library, GemmProblem& problem, std::int64_t rows);

}  // namespace metronome
