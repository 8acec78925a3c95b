// SPDX-License-Identifier: Apache-2.0
// `metronome bench --products` on other devices: of too little memory, without wgmma, with a
// library that has no invariant kernels, broken in the middle. And what is launched how often.
#include <stdlib.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "gpu/bench/product_bench.h"
#include "gpu/bench/product_kernels.h"
#include "gpu/emulator/cuda_emulator.h"
#include "gpu/emulator/emulated_gemm.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/plan/cuda_config.h"
#include "study/bench/bench_products.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/gpu/product_model.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Kind = ProductKernel::Kind;

constexpr const char* kWideModel = R"({"architectures": ["LlamaForCausalLM"],
  "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 4,
  "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 256, "vocab_size": 128,
  "max_position_embeddings": 96, "rms_norm_eps": 1e-6, "tie_word_embeddings": true})";

// A device as new, a model, and the fewest launches.
struct Place {
  ScratchFolder folder;
  Scenario scenario;
  ProductBenchOptions options;

  Place() {
    emulator::reset();
    ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
    scenario.model = folder.write("tiny/config.json", kProductModel);
    scenario.weights = Weights::Random;
    scenario.backends.edit<CudaConfig>().max_pass_tokens = 16;
    options = {.tokens = {1}, .repeats = 1, .min_launches = 1, .cold_bytes = 1};
  }
  ~Place() {
    emulator::set_gemm_algorithms(emulator::kAllGemmAlgorithms);
    emulator::set_failures_silent(false);
    emulator::reset();
    ::unsetenv("XDG_CACHE_HOME");
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  ProductReport bench() const { return make_product_bench()(scenario, options, {}); }
};

std::vector<Kind> kinds_of(const ProductPoint& point) {
  std::vector<Kind> kinds;
  for (const TimedKernel& timed : point.kernels) kinds.push_back(timed.kernel.kind);
  return kinds;
}

TEST_CASE("products are timed by what the GPU has", "[gpu_products]") {
  Place place;
  SECTION("no wgmma before Hopper") {
    emulator::set_compute_capability(8, 0);
    place.options.tokens = {1, 32};
    const ProductReport report = place.bench();
    REQUIRE(report.points.size() == 8);
    CHECK(kinds_of(report.points[0]) ==
          std::vector<Kind>{Kind::CublasLt, Kind::CublasLtInvariant, Kind::DecodeGemm});
    CHECK(kinds_of(report.points[1]) == std::vector<Kind>{Kind::CublasLt, Kind::CublasLtInvariant});
    place.scenario.backends.edit<CudaConfig>().early_launches = true;
    CHECK(error_of([&] {
            place.bench();
          }).starts_with("cuda.early_launches: needs a GPU of compute capability 9.0"));
  }
  SECTION("no clusters on one processor") {
    emulator::set_num_multiprocessors(1);
    place.options.tokens = {16};
    const ProductReport report = place.bench();
    REQUIRE(report.points.size() == 4);
    CHECK(report.points[0].kernels.size() == 3 + 18);
  }
  SECTION("no invariant kernels in the library") {
    // Sums that are split have a length; the product behind the rates has not.
    place.scenario.model = place.folder.write("wide/config.json", kWideModel);
    const auto split_sums = [](const ProductReport& so_far) {
      if (so_far.rates.matrix_flops_per_s > 0) {
        emulator::set_gemm_algorithms(emulator::kSplitInFloat);
      }
    };
    const ProductReport report = make_product_bench()(place.scenario, place.options, split_sums);
    REQUIRE(report.points.size() == 4);
    REQUIRE(report.skipped.size() == 4);
    CHECK(report.skipped[3].what == "down by cublaslt invariant");
    CHECK(contains(report.skipped[3].why, "cuBLASLt has no algorithm that sums in the same order"));
    for (const ProductPoint& point : report.points) {
      CHECK(kinds_of(point) ==
            std::vector<Kind>{Kind::CublasLt, Kind::DecodeGemm, Kind::PrefillGemm});
    }
  }
  SECTION("early launches where they are wanted") {
    place.scenario.backends.edit<CudaConfig>().early_launches = true;
    CHECK(place.bench().has_early_launches);
  }
}

TEST_CASE("products that the GPU has no memory for are skipped", "[gpu_products]") {
  Place place;
  emulator::set_memory_limit(std::size_t{100} << 20);
  place.options.tokens = {1, 1'000'000};
  const ProductReport report = place.bench();
  REQUIRE(report.points.size() == 4);
  REQUIRE(report.skipped.size() == 4);
  CHECK(report.skipped[0].what == "qkv, 1000000 tokens");
  CHECK(report.skipped[0].why == "the GPU has no memory for its weights and activations");
  // Algorithms for as many rows as a run may have are given up first.
  place.scenario.backends.edit<CudaConfig>().max_pass_tokens = 131072;
  place.options.tokens = {1};
  CHECK(place.bench().points.size() == 4);
}

TEST_CASE("a linear layer takes no more memory than it says", "[gpu_products]") {
  const Place place;
  const GpuInfo gpu = open_gpu(0);
  for (const std::int64_t num_copies : {1, 40}) {
    for (const bool has_gates : {false, true}) {
      for (const std::int64_t rows : {100, 600}) {
        const ProductSetup setup = {
            .product = {.name = "one", .n = 144, .k = 136, .has_gates = has_gates},
            .num_copies = num_copies,
            .max_tokens = 100,
            .max_gemm_rows = rows};
        CAPTURE(num_copies, has_gates, rows);
        const auto before = static_cast<std::int64_t>(emulator::bytes_allocated());
        const std::int64_t most = ProductKernels::bytes(setup, gpu.l2_bytes);
        emulator::set_memory_limit(static_cast<std::size_t>(before + most));
        GemmStore store("this test");
        const ProductKernels kernels(setup, gpu, store);
        const auto taken = static_cast<std::int64_t>(emulator::bytes_allocated()) - before;
        CHECK(taken <= most);
        CHECK(taken > most / 2);
      }
    }
  }
}

// Kernels that a bench of one token enqueues or captures.
std::int64_t num_launches(Place& place, std::int32_t min_launches, std::int64_t cold_bytes) {
  place.options.min_launches = min_launches;
  place.options.cold_bytes = cold_bytes;
  const std::int64_t before = emulator::num_launches();
  place.bench();
  return emulator::num_launches() - before;
}

TEST_CASE("a graph has whole rounds through weights that no cache keeps", "[gpu_products]") {
  Place place;
  emulator::set_compute_capability(8, 0);
  const std::int64_t least = num_launches(place, 1, 1);
  // Kernels of our own: a product of few tokens for each of four, and the activation behind
  // cuBLASLt's gates in both modes.
  CHECK(num_launches(place, 10, 1) - least == (4 + 2) * 9);
  // Weights of 32768, 16384, 18432 and 9216 bytes: 4, 7, 6 and 11 copies.
  CHECK(num_launches(place, 10, 100'000) - least == 11 + 13 + 11 + 10 + 2 * 11);
  // Three times the L2 cache of 256 KiB: 25, 49, 43 and 86 copies.
  CHECK(num_launches(place, 10, 0) - least == 24 + 48 + 42 + 85 + 2 * 42);
}

TEST_CASE("what was measured before the GPU broke is printed and written", "[gpu_products]") {
  const Place place;
  ProductsCommand command;
  command.model = place.scenario.model;
  command.json = place.folder.path() + "/products.json";
  command.bench = place.options;
  std::ostringstream text;
  std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
  const std::int64_t start = emulator::num_kernels_executed();
  bench_products(command, make_product_bench());
  const auto whole = static_cast<int>(emulator::num_kernels_executed() - start);
  emulator::set_failures_silent(true);
  emulator::fail_execution(whole * 3 / 4, cudaErrorIllegalAddress);
  std::string error;
  try {
    bench_products(command, make_product_bench());
  } catch (const CudaError& failure) {
    error = failure.what();
  }
  std::cout.rdbuf(before);
  CHECK(contains(error, "illegal"));
  const auto json = Json::parse(read_text_file(command.json));
  CHECK(json["points"].size() >= 2);
  CHECK(json["points"].size() <= 4);
  std::size_t num_timed = 0;
  for (const auto& point : json["points"]) num_timed += point["kernels"].size();
  CHECK(num_timed >= 8);
  CHECK(num_timed < 16);
  CHECK(text.str().rfind("model       tiny\n") > 100);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
