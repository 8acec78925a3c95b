// What a bench of products times, and what comes out.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "gpu/plan/layer_products.h"
#include "gpu/plan/step_floor.h"

namespace metronome {

constexpr std::array<std::int32_t, 10> kProductTokens = {1,   8,   16,   64,   128,
                                                         256, 512, 1024, 2048, 4096};
constexpr std::int32_t kMostProductTokens = 65536;
// From here on every tile of launch_prefill_gemm is timed; for fewer tokens that of
// choose_prefill_gemm_tile().
constexpr std::int32_t kFewestTokensOfAllTiles = 16;
// What predicted cycles are cycles of: an H100 under load, as in prefill_gemm_tile.cpp.
constexpr double kPredictedMhz = 1755;

struct TimedKernel {
  ProductKernel kernel;
  double us = 0;            // of one launch, among others back to back; median
  double predicted_us = 0;  // of PrefillGemm: prefill_gemm_cycles() at kPredictedMhz; else 0
  bool is_chosen = false;   // by choose_prefill_gemm_tile()
};

struct ProductPoint {
  LayerProduct product;
  std::int32_t num_tokens = 0;
  double floor_us = 0;
  bool is_memory_bound = false;  // its floor is
  // In the order of ProductKernel::Kind. What cannot compute the product is not there: DecodeGemm
  // with many tokens or inputs, PrefillGemm but on compute capability 9.0.
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
  // Launches in a graph, at least: one alone is shorter than the host needs for it. They go round
  // by round through weights of `cold_bytes` and more.
  std::int32_t min_launches = 10;
  std::int64_t cold_bytes = 0;  // 0: three times the L2 cache
};

// Called with the report so far, behind each kernel. What it throws ends the bench.
using ProductProgressFn = std::function<void(const ProductReport&)>;

// Times the products of one layer of scenario.model, whose weights are noise and come from memory,
// as in a run; inputs and outputs stay where they are. All kernels of a point compute the same:
// behind a product of cuBLASLt with gates goes launch_gated_activation. Heeds of `scenario` the
// model and, of `cuda`, device, early_launches, gpu_memory_utilization and max_pass_tokens, for
// which algorithms of cuBLASLt are chosen. What the GPU has no memory for is skipped, with the
// reason. Throws ConfigError; CudaError when the GPU fails.
using ProductBenchFn =
    std::function<ProductReport(const Scenario& scenario, const ProductBenchOptions& options,
                                const ProductProgressFn& progress)>;

}  // namespace metronome
