// Step times of a model on a GPU beside what the machine's memory and arithmetic allow.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/scenario/scenario.h"
#include "gpu/plan/bench_report.h"

namespace metronome {

// Loads scenario.model with weights as the scenario says, fills the KV cache with noise, and times
// every case `repeats` times after two warm-up steps, in order; each becomes a point or is skipped,
// with the reason. No context is longer than the model's positions, whatever the scenario allows.
// Throws ConfigError, also for a model the GPU has no memory for and for an invariance that does
// not hold; CudaError when the GPU fails.
using BenchFn =
    std::function<BenchReport(const Scenario& scenario, const std::vector<BenchCase>& cases,
                              std::int32_t repeats, const BenchProgressFn& progress)>;

// Empty in a build without CUDA.
BenchFn make_gpu_bench();

}  // namespace metronome
