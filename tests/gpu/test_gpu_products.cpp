// SPDX-License-Identifier: Apache-2.0
// `metronome bench --products`: that all kernels of a point compute the same, that each is timed,
// and the floors. Times are only checked for being there: under the emulator they say nothing.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "gpu/bench/product_bench.h"
#include "gpu/bench/product_kernels.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/plan/cuda_config.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/gpu/gpu_test.h"
#include "tests/gpu/product_model.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Kind = ProductKernel::Kind;

std::vector<ProductKernel> all_kernels(const GpuInfo& gpu) {
  std::vector<ProductKernel> kernels = {
      {.kind = Kind::CublasLt}, {.kind = Kind::CublasLtInvariant}, {.kind = Kind::DecodeGemm}};
  for (const PrefillGemmTile& tile : prefill_gemm_tiles(gpu.num_processors)) {
    kernels.push_back({.kind = Kind::PrefillGemm, .tile = tile});
  }
  return kernels;
}

// Outputs of num_tokens tokens behind one launch, or two, on what was drawn.
Bf16s run(const ProductKernels& kernels, const ProductKernel& kernel, const Bf16s& drawn,
          std::int32_t num_tokens, std::int64_t copy, std::int64_t num_outputs,
          std::int32_t num_launches = 1) {
  kernels.outputs().upload(drawn);
  for (std::int32_t i = 0; i < num_launches; ++i) {
    kernels.launch(kernel, num_tokens, copy, nullptr);
  }
  Bf16s after = kernels.outputs().download();
  after.resize(static_cast<std::size_t>(num_tokens * num_outputs));
  return after;
}

// As a share of the largest magnitude.
double largest_difference(const Bf16s& a, const Bf16s& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  double magnitude = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(to_double(a[i]) - to_double(b[i]));
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
    magnitude = std::max(magnitude, std::abs(to_double(a[i])));
  }
  return largest / magnitude;
}

TEST_CASE("all kernels of a product compute the same", "[gpu][bench]") {
  const GpuInfo gpu = open_gpu(0);
  const LayerProduct products[] = {
      {.name = "qkv", .n = 144, .k = 136},
      {.name = "down", .n = 144, .k = 136, .adds_output = true},
      {.name = "gate_up, SiLU", .n = 144, .k = 136, .has_gates = true},
      {.name = "gate_up, GELU", .n = 144, .k = 136, .has_gates = true, .is_gelu = true},
  };
  std::vector<Bf16s> results;  // of 130 tokens
  for (const LayerProduct& product : products) {
    GemmStore store("this test");
    const ProductKernels kernels(
        {.product = product, .num_copies = 2, .max_tokens = 130, .max_gemm_rows = 144}, gpu, store);
    const Bf16s drawn = kernels.outputs().download();
    const std::int64_t outputs = product.num_outputs();
    for (const std::int32_t num_tokens : {1, 16, 130}) {
      CAPTURE(product.name, num_tokens);
      const ProductKernel library = {.kind = Kind::CublasLt};
      const Bf16s expected = run(kernels, library, drawn, num_tokens, 1, outputs);
      CHECK(largest_difference(expected, run(kernels, library, drawn, num_tokens, 0, outputs)) >
            0.1);
      const Bf16s twice = run(kernels, library, drawn, num_tokens, 1, outputs, 2);
      CHECK((first_difference(expected, twice) == -1) == !product.adds_output);
      for (const ProductKernel& kernel : all_kernels(gpu)) {
        CAPTURE(kernel_name(kernel.kind), tile_name(kernel.tile));
        const bool takes = kernels.takes(kernel.kind, num_tokens);
        CHECK(takes == (kernel.kind == Kind::DecodeGemm    ? num_tokens <= 16
                        : kernel.kind == Kind::PrefillGemm ? gpu.compute_capability == 90
                                                           : true));
        if (!takes) continue;
        const Bf16s result = run(kernels, kernel, drawn, num_tokens, 1, outputs);
        CHECK(largest_difference(expected, result) < 0x1p-7);
      }
      if (num_tokens == 130) results.push_back(expected);
    }
  }
  CHECK(largest_difference(results[2], results[3]) > 0x1p-7);
}

TEST_CASE("launches go round through all copies of the weights", "[gpu][bench]") {
  GemmStore store("this test");
  const ProductKernels kernels({.product = {.name = "down", .n = 64, .k = 72, .adds_output = true},
                                .num_copies = 3,
                                .max_tokens = 16,
                                .max_gemm_rows = 16},
                               open_gpu(0), store);
  const ProductKernel kernel = {.kind = Kind::DecodeGemm};
  const Bf16s drawn = kernels.outputs().download();
  for (const std::int64_t copy : {0, 1, 2, 0, 1, 2}) kernels.launch(kernel, 16, copy, nullptr);
  const Bf16s one_by_one = kernels.outputs().download();
  kernels.outputs().upload(drawn);
  kernels.launch_rounds(kernel, 16, 2, nullptr);
  CHECK(first_difference(kernels.outputs().download(), one_by_one) == -1);
}

// A model, algorithms kept where no other run finds them, and the fewest launches.
struct Lab {
  ScratchFolder folder;
  Scenario scenario;
  ProductBenchOptions options;

  Lab() {
    ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
    scenario.model = folder.write("tiny/config.json", kProductModel);
    scenario.weights = Weights::Random;
    scenario.backends.edit<CudaConfig>().max_pass_tokens = 16;
    options.repeats = 1;
    options.min_launches = 1;
    options.cold_bytes = 1;
  }
  ~Lab() { ::unsetenv("XDG_CACHE_HOME"); }
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  ProductReport bench(const ProductProgressFn& progress = {}) const {
    return make_product_bench()(scenario, options, progress);
  }
};

PrefillGemmSize size_of(const ProductPoint& point) {
  return {.num_tokens = point.num_tokens,
          .n = point.product.n,
          .k = point.product.k,
          .has_gates = point.product.name == "gate_up"};
}

// In order, each once; of the tiles those that are to be timed.
std::vector<ProductKernel> expected_kernels(const GpuInfo& gpu, const ProductPoint& point) {
  std::vector<ProductKernel> kernels = {{.kind = Kind::CublasLt},
                                        {.kind = Kind::CublasLtInvariant}};
  if (point.num_tokens <= 16) kernels.push_back({.kind = Kind::DecodeGemm});
  if (gpu.compute_capability != 90) return kernels;
  const PrefillGemmTile chosen = choose_prefill_gemm_tile(size_of(point), gpu.num_processors);
  for (const PrefillGemmTile& tile : prefill_gemm_tiles(gpu.num_processors)) {
    if (point.num_tokens < 16 && tile != chosen) continue;
    kernels.push_back({.kind = Kind::PrefillGemm, .tile = tile});
  }
  return kernels;
}

void check_tile(const GpuInfo& gpu, const ProductPoint& point, const TimedKernel& timed) {
  const PrefillGemmSize size = size_of(point);
  CHECK(timed.is_chosen ==
        (timed.kernel.tile == choose_prefill_gemm_tile(size, gpu.num_processors)));
  CHECK(timed.predicted_us ==
        Approx(prefill_gemm_cycles(size, timed.kernel.tile, gpu.num_processors) / 1755));
}

TEST_CASE("every product is timed by every kernel that computes it", "[gpu][bench]") {
  const GpuInfo gpu = open_gpu(0);
  Lab lab;
  lab.options.tokens = {8, 16, 20};
  const ProductReport report = lab.bench();
  CHECK(report.model.name == "tiny");
  CHECK(report.device == gpu.text());
  CHECK(report.repeats == 1);
  CHECK_FALSE(report.has_early_launches);
  CHECK(report.rates.copy_bytes_per_s > 0);
  CHECK(report.rates.matrix_flops_per_s > 0);
  CHECK(report.skipped.empty());
  const std::string names[] = {"qkv", "output", "gate_up", "down"};
  REQUIRE(report.points.size() == 12);
  for (std::size_t i = 0; i < report.points.size(); ++i) {
    const ProductPoint& point = report.points[i];
    CAPTURE(point.product.name, point.num_tokens);
    CHECK(point.product.name == names[i / 3]);
    CHECK(point.num_tokens == lab.options.tokens[i % 3]);
    std::vector<ProductKernel> kernels;
    for (const TimedKernel& timed : point.kernels) {
      kernels.push_back(timed.kernel);
      CHECK(timed.us > 0);
      if (timed.kernel.kind == Kind::PrefillGemm) {
        check_tile(gpu, point, timed);
      } else {
        CHECK_FALSE(timed.is_chosen);
        CHECK(timed.predicted_us == 0);
      }
    }
    CHECK(kernels == expected_kernels(gpu, point));
  }
  // Of 20 tokens: 72 inputs and 64 outputs each, which are read before they are added to.
  const double bytes = 2.0 * (64 * 72 + 20 * (72 + 2 * 64));
  const double flops = 2.0 * 64 * 72 * 20;
  const double memory_us = bytes / report.rates.copy_bytes_per_s * 1e6;
  const double arithmetic_us = flops / report.rates.matrix_flops_per_s * 1e6;
  const ProductPoint& down = report.points.back();
  CHECK(down.floor_us == Approx(std::max(memory_us, arithmetic_us)));
  CHECK(down.is_memory_bound == (memory_us > arithmetic_us));
}

TEST_CASE("an interrupted bench of products keeps what it measured", "[gpu][bench]") {
  const GpuInfo gpu = open_gpu(0);
  Lab lab;
  lab.options.tokens = {1, 2};
  ProductReport kept;
  const auto num_timed = [&kept] {
    std::size_t number = 0;
    for (const ProductPoint& point : kept.points) number += point.kernels.size();
    return number;
  };
  const auto stop_late = [&](const ProductReport& so_far) {
    kept = so_far;
    if (num_timed() == 6) throw ConfigError("stopped");
  };
  CHECK(error_of([&] { lab.bench(stop_late); }) == "stopped");
  CHECK(num_timed() == 6);
  REQUIRE(kept.points.size() == 2);
  const std::size_t num_kernels = gpu.compute_capability == 90 ? 4 : 3;
  CHECK(kept.points[0].kernels.size() == num_kernels);
  CHECK(kept.points[1].kernels.size() == 6 - num_kernels);
  CHECK(kept.model.name == "tiny");
  CHECK(kept.rates.copy_bytes_per_s > 0);
}

TEST_CASE("a bench of products refuses what cannot be computed", "[gpu][bench]") {
  Lab lab;
  lab.scenario.model = "tiny-llama";
  CHECK(error_of([&] { lab.bench(); }) == "model: head_dim: is 32; allowed: 64, 128 or 256");
  lab.scenario.model = "nobody";
  CHECK(error_of([&] { lab.bench(); }).starts_with("model: unknown name 'nobody'; allowed: "));
}

TEST_CASE("metronome bench --products writes a table and a report", "[gpu][bench]") {
  const Lab lab;
  const std::string out = lab.folder.path() + "/products.json";
  const CommandResult result =
      run_metronome("bench '" + lab.scenario.model +
                    "' --products --tokens 1,8 --repeats 1 --json '" + out + "'");
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(result.out.starts_with("model       tiny\ndevice      "));
  const auto json = Json::parse(read_text_file(out));
  CHECK(json["metronome_products"] == 1);
  CHECK(json["repeats"] == 1);
  CHECK(json["early_launches"] == false);
  REQUIRE(json["points"].size() == 8);
  CHECK(json["points"][7]["product"] == "down");
  CHECK(json["points"][7]["tokens"] == 8);
  for (const auto& point : json["points"]) {
    CHECK(point["floor_us"].get<double>() > 0);
    REQUIRE(point["kernels"].size() >= 3);
    for (const auto& kernel : point["kernels"]) CHECK(kernel["us"].get<double>() > 0);
    CHECK(contains(result.out, "\n" + point["product"].get<std::string>() + " "));
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
