// SPDX-License-Identifier: Apache-2.0
// The output of `metronome bench --products` for a report, and its options.
// tests/gpu/test_gpu_products.cpp has the measuring.
#include <algorithm>

#include "core/base/json.h"
#include "core/model/model_catalogue.h"
#include "gpu/bench/product_bench.h"
#include "study/bench/bench_products.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tools/commands/cli.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Kind = ProductKernel::Kind;

TimedKernel timed(Kind kind, double us) { return {.kernel = {.kind = kind}, .us = us}; }

TimedKernel timed_tile(const PrefillGemmTile& tile, double us, bool is_chosen) {
  return {.kernel = {.kind = Kind::PrefillGemm, .tile = tile},
          .us = us,
          .predicted_us = 2 * us,
          .is_chosen = is_chosen};
}

// Two points; the second ends in the middle, as that of a bench which was interrupted.
ProductReport some_report() {
  ProductReport report;
  report.model = find_model("llama-3.2-3b", {});
  report.device = "a GPU";
  report.rates = {.copy_bytes_per_s = 4.25e12, .matrix_flops_per_s = 700e12};
  report.has_early_launches = true;
  report.repeats = 3;
  const auto products = layer_products(report.model);
  ProductPoint whole;
  whole.product = products[1];
  whole.num_tokens = 1024;
  whole.floor_us = 27.61;
  whole.kernels = {timed(Kind::CublasLt, 40), timed(Kind::CublasLtInvariant, 50),
                   timed_tile({256, 2, 128}, 45, true), timed_tile({192, 1, 64}, 42.5, false),
                   timed_tile({32, 1, 64}, 99, false)};
  ProductPoint partial;
  partial.product = products[2];
  partial.num_tokens = 8;
  partial.floor_us = 23.7;
  partial.is_memory_bound = true;
  partial.kernels = {timed(Kind::CublasLt, 30), timed(Kind::DecodeGemm, 25)};
  report.points = {whole, partial};
  report.skipped = {{"down, 4096 tokens", "the GPU has no memory"}};
  return report;
}

TEST_CASE("a row of products has the chosen tile beside the best", "[bench]") {
  const std::string text = products_text(some_report());
  INFO(text);
  CHECK(text.starts_with(
      "model       llama-3.2-3b\ndevice      a GPU\ncopy        4.25 TB/s\nproduct     700 "
      "TFLOP/s, bfloat16\n\nproduct "));
  const auto line = [&](const std::string& begin) {
    const std::size_t at = text.find("\n" + begin) + 1;
    std::string squeezed;
    for (const char c : text.substr(at, text.find('\n', at) - at)) {
      if (c != ' ' || squeezed.back() != ' ') squeezed += c;
    }
    return squeezed;
  };
  CHECK(line("output ") ==
        "output 1,024 27.61 40.00 50.00 45.00 128 x 256 x 2 42.50 64 x 192 x 1 0.85");
  CHECK(line("gate_up ") == "gate_up 8 23.70 30.00 - - - 25.00 decode_gemm -");
  CHECK(text.ends_with("\ndown, 4096 tokens: skipped, the GPU has no memory\n"));
}

TEST_CASE("the report of products has every kernel", "[bench]") {
  const auto json = Json::parse(products_json(some_report()));
  CHECK(json["metronome_products"] == 1);
  CHECK(json["model"] == "llama-3.2-3b");
  CHECK(json["shape"]["ffn_dim"] == 8192);
  CHECK(json["device"] == "a GPU");
  CHECK(json["early_launches"] == true);
  CHECK(json["repeats"] == 3);
  CHECK(json["copy_bytes_per_s"] == 4.25e12);
  CHECK(json["matrix_flops_per_s"] == 700e12);
  REQUIRE(json["points"].size() == 2);
  const auto& point = json["points"][0];
  CHECK(point["product"] == "output");
  CHECK(point["tokens"] == 1024);
  CHECK(point["n"] == 3072);
  CHECK(point["k"] == 3072);
  CHECK(point["has_gates"] == false);
  CHECK(point["adds_output"] == true);
  CHECK(point["floor_us"] == 27.61);
  CHECK(point["bound"] == "arithmetic");
  REQUIRE(point["kernels"].size() == 5);
  CHECK(point["kernels"][1] == Json({{"kernel", "cublaslt invariant"}, {"us", 50.0}}));
  CHECK(point["kernels"][2] == Json({{"kernel", "prefill_gemm"},
                                     {"us", 45.0},
                                     {"rows", 128},
                                     {"columns", 256},
                                     {"cluster", 2},
                                     {"predicted_us", 90.0},
                                     {"chosen", true}}));
  CHECK(point["kernels"][3]["chosen"] == false);
  CHECK(json["points"][1]["bound"] == "memory");
  CHECK(json["points"][1]["kernels"][1]["kernel"] == "decode_gemm");
  CHECK(json["skipped"][0]["what"] == "down, 4096 tokens");
}

TEST_CASE("numbers of tokens are read whole, or refused", "[bench]") {
  CHECK(parse_tokens("64") == std::vector<std::int32_t>{64});
  CHECK(parse_tokens("1,64,65536") == std::vector<std::int32_t>{1, 64, 65536});
  for (const std::string text : {"", ",", "0", "-1", "64,", ",64", "64,64", "64,8", "64 ", "65537",
                                 "6x", "99999999999999"}) {
    CHECK(error_of<UsageError>([&] { parse_tokens(text); }) ==
          "--tokens: '" + text +
              "' is not a list of token counts; allowed: ascending counts from 1 to 65536, such as "
              "64,512");
  }
}

TEST_CASE("bench --products refuses what is of steps", "[cli][bench]") {
  const auto error = [](const std::string& options) {
    const CommandResult result = run_metronome("bench x " + options);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  for (const std::string option :
       {"--invariance none", "--invariance chunk", "--no-graphs", "--wgmma-attention",
        "--wgmma-products", "--fused-decodes", "--predict h200", "--cost-model x", "--measured x",
        "--rates 4,700"}) {
    CHECK(error("--products " + option) ==
          "metronome: error: " + option.substr(0, option.find(' ')) +
              ": has no effect with --products; allowed: one of them\n");
  }
  CHECK(error("--tokens 64") ==
        "metronome: error: --tokens: has no effect; allowed: with --products\n");
  CHECK(error("--products --tokens 0").starts_with("metronome: error: --tokens: '0' is not "));
  CHECK(error("--products --repeats 0").starts_with("metronome: error: --repeats: 0 is out of "));
}

TEST_CASE("bench --products takes its own options, and then needs CUDA", "[cli][bench]") {
  if (make_product_bench()) return;  // this build has it
  for (const std::string options :
       {"", "--tokens 8,16", "--json x --device 1 --repeats 3", "--early-launches"}) {
    const CommandResult result = run_metronome("bench x --products " + options);
    INFO(options);
    CHECK(result.exit_code == 2);
    CHECK(result.err.starts_with("metronome: error: bench: this build has no CUDA executor "));
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
