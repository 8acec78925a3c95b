// SPDX-License-Identifier: Apache-2.0
#include "gpu/bench/product_bench.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/types.h"
#include "core/scenario/scenario.h"
#include "gpu/bench/bench_timing.h"
#include "gpu/bench/product_kernels.h"
#include "gpu/engine/model_loading.h"
#include "gpu/kernels/launch.h"
#include "gpu/plan/cuda_config.h"
#include "models/weights/model_source.h"

namespace metronome {
namespace {

using Kind = ProductKernel::Kind;

class ProductBench {
 public:
  ProductBench(const Scenario& scenario, const ProductBenchOptions& options,
               const ProductProgressFn& progress)
      : scenario_(scenario),
        options_(options),
        progress_(progress),
        gpu_(open_gpu(scenario.backends.get<CudaConfig>().device)),
        stream_(make_stream()) {}

  ProductReport run();

 private:
  void poll() const {
    if (progress_) progress_(report_);
  }
  ProductSetup setup_of(const LayerProduct& product, std::int64_t max_tokens) const;
  bool fits(const ProductSetup& setup) const {
    return ProductKernels::bytes(setup, gpu_.l2_bytes) <= usable_bytes(gpu_, scenario_);
  }
  void time_product(const LayerProduct& product);
  void time_point(const ProductKernels& kernels, const LayerProduct& product,
                  std::int32_t num_tokens);
  std::vector<TimedKernel> candidates(const ProductKernels& kernels, const LayerProduct& product,
                                      std::int32_t num_tokens) const;
  double microseconds(const ProductKernels& kernels, const ProductKernel& kernel,
                      const LayerProduct& product, std::int32_t num_tokens) const;
  std::int64_t num_copies(const LayerProduct& product) const;

  const Scenario& scenario_;
  const ProductBenchOptions& options_;
  const ProductProgressFn& progress_;
  GpuInfo gpu_;
  Stream stream_;
  ProductReport report_;
};

// Enough copies of the weights that no cache can hold them all.
std::int64_t ProductBench::num_copies(const LayerProduct& product) const {
  const std::int64_t cold = options_.cold_bytes > 0 ? options_.cold_bytes : 3 * gpu_.l2_bytes;
  return cold / (2 * product.n * product.k) + 1;
}

// Chooses algorithms for as many rows as a run of this scenario, if memory allows. Then they are
// the same as in that run.
ProductSetup ProductBench::setup_of(const LayerProduct& product, std::int64_t max_tokens) const {
  ProductSetup setup;
  setup.product = product;
  setup.num_copies = num_copies(product);
  setup.max_tokens = max_tokens;
  setup.max_gemm_rows =
      std::max<std::int64_t>(max_tokens, scenario_.backends.get<CudaConfig>().max_pass_tokens);
  if (!fits(setup)) setup.max_gemm_rows = max_tokens;
  return setup;
}

// Median time of one launch. A graph has whole rounds over the copies of the weights, so that the
// time since the last use is equal for all copies.
double ProductBench::microseconds(const ProductKernels& kernels, const ProductKernel& kernel,
                                  const LayerProduct& product, std::int32_t num_tokens) const {
  const std::int64_t copies = num_copies(product);
  const std::int64_t rounds = ceil_div(options_.min_launches, copies);
  const EarlyLaunches early(scenario_.backends.get<CudaConfig>().early_launches);
  kernels.launch(kernel, num_tokens, 0, stream_.get());  // makes the driver load the kernel
  const GraphExec graph = capture_graph(
      stream_.get(), [&] { kernels.launch_rounds(kernel, num_tokens, rounds, stream_.get()); });
  check_cuda(cudaGraphUpload(graph.get(), stream_.get()), "cudaGraphUpload");
  const Timings times = time_on(stream_.get(), options_.repeats, [&] {
    check_cuda(cudaGraphLaunch(graph.get(), stream_.get()), "cudaGraphLaunch");
  });
  return median(times.device) / static_cast<double>(rounds * copies);
}

// All kernels that can compute the product, without times.
std::vector<TimedKernel> ProductBench::candidates(const ProductKernels& kernels,
                                                  const LayerProduct& product,
                                                  std::int32_t num_tokens) const {
  std::vector<TimedKernel> found;
  for (const Kind kind : {Kind::CublasLt, Kind::CublasLtInvariant, Kind::DecodeGemm}) {
    if (kernels.takes(kind, num_tokens)) found.push_back({.kernel = {.kind = kind}});
  }
  if (!kernels.takes(Kind::PrefillGemm, num_tokens)) return found;
  const PrefillGemmSize size = {
      .num_tokens = num_tokens, .n = product.n, .k = product.k, .has_gates = product.has_gates};
  const PrefillGemmTile chosen = choose_prefill_gemm_tile(size, gpu_.num_processors);
  for (const PrefillGemmTile& tile : prefill_gemm_tiles(gpu_.num_processors)) {
    const bool is_chosen = tile == chosen;
    if (num_tokens < kFewestTokensOfAllTiles && !is_chosen) continue;
    found.push_back(
        {.kernel = {.kind = Kind::PrefillGemm, .tile = tile},
         .predicted_us = prefill_gemm_cycles(size, tile, gpu_.num_processors) / kPredictedMhz,
         .is_chosen = is_chosen});
  }
  return found;
}

void ProductBench::time_point(const ProductKernels& kernels, const LayerProduct& product,
                              std::int32_t num_tokens) {
  const FloorWork work = product_work(product, num_tokens);
  const MachineRates& rates = report_.rates;
  report_.points.push_back({.product = product,
                            .num_tokens = num_tokens,
                            .floor_us = step_floor_s(work, rates) * 1e6,
                            .is_memory_bound = work.bytes / rates.copy_bytes_per_s >
                                               work.flops / rates.matrix_flops_per_s});
  for (TimedKernel& timed : candidates(kernels, product, num_tokens)) {
    timed.us = microseconds(kernels, timed.kernel, product, num_tokens);
    report_.points.back().kernels.push_back(timed);
    poll();
  }
}

void ProductBench::time_product(const LayerProduct& product) {
  std::vector<std::int32_t> counts;
  for (const std::int32_t num_tokens : options_.tokens) {
    if (fits(setup_of(product, num_tokens))) {
      counts.push_back(num_tokens);
    } else {
      report_.skipped.push_back({product.name + ", " + std::to_string(num_tokens) + " tokens",
                                 "the GPU has no memory for its weights and activations"});
    }
  }
  poll();
  if (counts.empty()) return;
  GemmStore store = load_gemm_store();
  const ProductKernels kernels(setup_of(product, *std::max_element(counts.begin(), counts.end())),
                               gpu_, store);
  keep_gemm_store(store);
  if (const std::string fault = kernels.invariant_fault(); !fault.empty()) {
    report_.skipped.push_back(
        {product.name + " by " + kernel_name(Kind::CublasLtInvariant), fault});
  }
  for (const std::int32_t num_tokens : counts) time_point(kernels, product, num_tokens);
}

ProductReport ProductBench::run() {
  const ModelSource source = find_model_source(scenario_);
  const std::string unsupported = unsupported_on_gpu(source.config);
  if (!unsupported.empty()) throw UnplacedConfigError("model", unsupported);
  DeviceEngineOptions hopper;
  hopper.launches_early = scenario_.backends.get<CudaConfig>().early_launches;
  check_hopper_options(gpu_, scenario_, hopper);
  report_.model = source.config;
  report_.device = gpu_.text();
  report_.has_early_launches = scenario_.backends.get<CudaConfig>().early_launches;
  report_.repeats = options_.repeats;
  report_.rates = measure_rates(gpu_, options_.repeats, [this] { poll(); });
  for (const LayerProduct& product : layer_products(report_.model)) time_product(product);
  return report_;
}

}  // namespace

ProductBenchFn make_product_bench() {
  return [](const Scenario& scenario, const ProductBenchOptions& options,
            const ProductProgressFn& progress) {
    return ProductBench(scenario, options, progress).run();
  };
}

}  // namespace metronome
