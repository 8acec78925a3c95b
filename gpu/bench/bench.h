// SPDX-License-Identifier: Apache-2.0
// Times steps of a model on a GPU, and compares them with the limits of memory and arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/plan/bench_report.h"

namespace metronome {

struct Scenario;

// Loads scenario.model with the scenario's weights and fills the KV cache with noise. Times every
// case `repeats` times after two warm-up steps, in order. Each case becomes a point or is skipped,
// with the reason. Contexts never exceed the model's positions, even if the scenario allows it.
// Throws ConfigError, also if the model does not fit the GPU's memory or the invariance does not
// hold. Throws CudaError if the GPU fails.
using BenchFn =
    std::function<BenchReport(const Scenario& scenario, const std::vector<BenchCase>& cases,
                              std::int32_t repeats, const BenchProgressFn& progress)>;

// Empty in a build without CUDA.
BenchFn make_gpu_bench();

}  // namespace metronome
