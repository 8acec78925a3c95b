// SPDX-License-Identifier: Apache-2.0
// Chooses algorithms of matrix products by timing them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/engine/gemm_library.h"

namespace metronome {

// Row counts with an algorithm of their own: 16, 32, 48, 64, 96, 128, 192, ... up to the first that
// is at least max_rows. A product uses the smallest bucket that holds its rows.
std::vector<std::int64_t> gemm_buckets(std::int64_t max_rows);

// Whether the algorithm can run the fewest and the most rows of a bucket.
bool can_run_bucket(const GemmLibrary& library, GemmProblem& problem, GemmMode mode,
                    const std::vector<std::int64_t>& buckets, std::size_t bucket,
                    const GemmAlgorithm& algorithm);

struct GemmChoices {
  std::vector<GemmChoice> fastest;    // [bucket]
  std::vector<GemmChoice> invariant;  // [bucket]; empty if no set serves
  std::string invariant_fault;        // why `invariant` is empty
};

// Times cuBLASLt's proposals on a stream of its own, and waits for the device. All of `invariant`
// have one algorithm id and gave the same bits for the same rows. Requires problem.max_rows() ==
// buckets.back(). Throws CudaError if no proposal works.
GemmChoices choose_gemms(const GemmLibrary& library, GemmProblem& problem,
                         const std::vector<std::int64_t>& buckets);

// A human-readable report that shows why a row's bits depend on its batch. Mode Invariant allows
// groups of algorithms: each group has one id and gave the same bits. Each group is listed with the
// row counts it serves, each bucket with its groups and their sizes. Each bucket also shows what
// `chosen` ([bucket], or empty) gives for its fewest and most rows. Every proposal of cuBLASLt for
// one bucket runs in all buckets; nothing is timed. Calls `poll` now and then. Throws CudaError.
std::string describe_invariant_gemms(const GemmLibrary& library, GemmProblem& problem,
                                     const std::vector<std::int64_t>& buckets,
                                     const std::vector<GemmAlgorithm>& chosen,
                                     const std::function<void()>& poll);

// The fastest of cuBLASLt's proposals in mode Fastest for exactly this many rows, timed as in
// choose_gemms(). Throws CudaError if no proposal works.
GemmChoice fastest_gemm(const GemmLibrary& library, GemmProblem& problem, std::int64_t rows);

}  // namespace metronome
