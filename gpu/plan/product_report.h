// SPDX-License-Identifier: Apache-2.0
// Inputs and results of timing linear layers, in the command `bench`.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "gpu/plan/layer_products.h"
#include "gpu/plan/step_floor.h"

namespace metronome {

struct Scenario;

constexpr std::array<std::int32_t, 10> kProductTokens = {1,   8,   16,   64,   128,
                                                         256, 512, 1024, 2048, 4096};
constexpr std::int32_t kMostProductTokens = 65536;
// From this number of tokens on, every tile of launch_prefill_gemm is timed. Below it, only that of
// choose_prefill_gemm_tile().
constexpr std::int32_t kFewestTokensOfAllTiles = 16;
// Clock of the predicted cycles: an H100 under load, as in prefill_gemm_tile.cpp.
constexpr double kPredictedMhz = 1755;

struct TimedKernel {
  ProductKernel kernel;
  double us = 0;            // of one launch, in a series of launches; median
  double predicted_us = 0;  // of PrefillGemm: prefill_gemm_cycles() at kPredictedMhz; else 0
  bool is_chosen = false;   // by choose_prefill_gemm_tile()
};

struct ProductPoint {
  LayerProduct product;
  std::int32_t num_tokens = 0;
  double floor_us = 0;
  bool is_memory_bound = false;  // whether memory decides floor_us
  // Sorted by ProductKernel::Kind. Kernels that cannot compute the product are left out: DecodeGemm
  // for many tokens or inputs, PrefillGemm on all but compute capability 9.0.
  std::vector<TimedKernel> kernels = {};
};

struct SkippedProduct {
  std::string what;  // "down, 4096 tokens", "down by cublaslt invariant"
  std::string why;
};

struct ProductReport {
  ModelConfig model;
  std::string device;
  MachineRates rates;  // measured in the same run
  bool has_early_launches = false;
  std::int32_t repeats = 0;
  std::vector<ProductPoint> points;  // by product, then by tokens; the last may lack kernels
  std::vector<SkippedProduct> skipped;
};

struct ProductBenchOptions {
  std::vector<std::int32_t> tokens{kProductTokens.begin(), kProductTokens.end()};
  std::int32_t repeats = 10;
  // Minimum number of launches in a graph: a single one is shorter than the host's overhead. They
  // cycle through at least `cold_bytes` of weights.
  std::int32_t min_launches = 10;
  std::int64_t cold_bytes = 0;  // 0: three times the L2 cache
};

// Called with the report so far after each kernel. An exception ends the timing.
using ProductProgressFn = std::function<void(const ProductReport&)>;

// Times the products of one layer of scenario.model. Weights are noise and are read from memory, as
// in a run; inputs and outputs stay in the same buffers. All kernels of a point compute the same:
// launch_gated_activation follows a cuBLASLt product with gates. Uses these parts of `scenario`:
// the model, and from `cuda` device, early_launches, gpu_memory_utilization and max_pass_tokens.
// The last decides the algorithms of cuBLASLt. Skips products that do not fit the GPU's memory,
// with the reason. Throws ConfigError; CudaError if the GPU fails.
using ProductBenchFn =
    std::function<ProductReport(const Scenario& scenario, const ProductBenchOptions& options,
                                const ProductProgressFn& progress)>;

}  // namespace metronome
