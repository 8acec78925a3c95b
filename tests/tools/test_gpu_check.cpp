// SPDX-License-Identifier: Apache-2.0
// tools/gpu_check: every stage's results and verdict, what it chooses, and what it says was shown.
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/tools/fake_gpu_build.h"

namespace TEST_FILE {
using namespace metronome::testing;
using Place = FakeGpuBuild;

TEST_CASE("gpu_check leaves every stage's results and verdict", "[tools][gpu_check]") {
  const Place place;
  const CommandResult result = place.check("start,bench,decisions,scenarios,tests", "");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  const std::string readme = place.text("README.md");
  for (const char* stage : {"start", "bench", "decisions", "scenarios", "tests"}) {
    CHECK(contains(readme, "| " + std::string(stage) + " | passed | "));
  }
  CHECK(contains(readme, "mixed steps: 25.0 % longer on average, 25.0 % at most"));
  const std::string decisions = place.text("decisions.log");
  CHECK(contains(decisions, "llama-3.2-3b/chunked_prefill chunked-512"));
  CHECK(contains(decisions, "gemma-3-1b/prefix_caching"));
  CHECK_FALSE(contains(decisions, "differ"));
  CHECK(contains(place.text("tests.log"), "ran [#test_gpu_norm]~[slow]\n"));
  CHECK(place.check("start", "").exit_code == 2);  // the folder is there
}

namespace {

// Bench reports of two models: one at `share` of its floors, with a long prefix whose attention
// runs at `tflops`.
void write_bench(const Place& place, const std::string& model, double share, double tflops,
                 const std::string& name = "bench", const std::string& end = ".chunk.json") {
  const auto point = [&](int decodes, int context, int chunk, int prefix, double floor_us,
                         double median_us) {
    std::ostringstream text;
    text << "{\"decodes\": " << decodes << ", \"context\": " << context << ", \"chunk\": " << chunk
         << ", \"prefix\": " << prefix << ", \"floor_us\": " << floor_us
         << ", \"median_us\": " << median_us << "}";
    return text.str();
  };
  // Two layers of two heads of 64: 4 * 2 * 64 operations a pair, 2048 * 16384 pairs more.
  const double more_us = 2.0 * 4 * 2 * 64 * 2048 * 16384 / tflops / 1e6;
  std::string points;
  for (const int batch : {1, 8, 64}) points += point(batch, 2048, 0, 0, 100, 100 / share) + ",";
  points += point(0, 0, 512, 0, 100, 100 / share) + ",";
  points += point(0, 0, 2048, 0, 100, 100 / share) + ",";
  points += point(0, 0, 2048, 16384, 100, 100 / share + more_us);
  place.scratch.write(
      "out/unknown/" + name + "." + model + end,
      "{\"model\": \"" + model +
          "\", \"invariance\": \"chunk\", \"device\": \"a GPU\", \"shape\": {\"n_layers\": 2, "
          "\"n_heads\": 2, \"head_dim\": 64, \"sliding_window\": 0, \"global_layer_interval\": 0}, "
          "\"points\": [" +
          points + "]}");
}

std::string verdict_of(const std::string& findings, const std::string& promise) {
  const std::size_t begin = findings.find("| " + promise);
  if (begin == std::string::npos) return "no such promise";
  const std::size_t verdict = findings.find(" | ", begin) + 3;
  return findings.substr(verdict, findings.find(" | ", verdict) - verdict);
}

CommandResult summarize(const Place& place) {
  return run_program("tools/gpu_summary", "--published '" + place.out + "/" + place.gpu + "'");
}

}  // namespace

TEST_CASE("gpu_summary says of every promise whether it was shown", "[tools][gpu_check]") {
  const Place place;
  write_bench(place, "llama-3.2-3b", 0.81, 500);
  write_bench(place, "gemma-3-1b", 0.61, 300);
  place.scratch.write("out/unknown/torch.json", R"({"models": [{"points": [{"torch_by_ours": 1.5},
    {"torch_by_ours": 0.8}]}]})");
  const CommandResult result = summarize(place);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  const std::string findings = place.text("findings.md");
  CHECK(contains(findings, "Weights are drawn at random"));
  for (const char* batch : {"1,", "8,", "64,"}) {
    CHECK(verdict_of(findings, "llama-3.2-3b: decodes at 2k, batch " + std::string(batch)) ==
          "PASS");
    CHECK(verdict_of(findings, "gemma-3-1b: decodes at 2k, batch " + std::string(batch)) == "PASS");
  }
  CHECK(contains(findings, "| 81.0%: 0.123 ms, floor 0.100 ms |"));
  CHECK(verdict_of(findings, "llama-3.2-3b: chunk of 512") == "PASS");
  CHECK(verdict_of(findings, "llama-3.2-3b: chunk of 2048") == "FAIL");
  CHECK(verdict_of(findings, "gemma-3-1b: chunk of 512") == "PASS");
  CHECK(verdict_of(findings, "gemma-3-1b: chunk of 2048") == "FAIL");
  CHECK(contains(findings, "| PASS | 500 TFLOP/s: "));
  CHECK(contains(findings, "| FAIL | 300 TFLOP/s: "));
  CHECK(contains(findings, "| FAIL | 1 of 2 steps; the worst takes 1.25 of PyTorch's time |"));
  CHECK(verdict_of(findings, "chunk-invariance") == "not measured");
  CHECK(verdict_of(findings, "p99 ITL 10 times") == "not measured");
  CHECK(verdict_of(findings, "simulated figures") == "not measured");
  const Place empty;
  empty.scratch.write("out/unknown/nothing", "");
  CHECK(summarize(empty).exit_code == 0);
  CHECK_FALSE(contains(empty.text("findings.md"), "PASS"));
}

TEST_CASE("gpu_check goes on with what of the options gains most", "[tools][gpu_check]") {
  SECTION("of those that gain, together") {
    const Place place;
    CHECK(place.check("tests,options,bench", "").exit_code == 0);
    CHECK(contains(place.text("state.json"), R"("chosen": [
  "fused_decodes",
  "wgmma_products"
 ])"));
    CHECK(contains(place.text("options.log"),
                   "options.together.json --fused-decodes --wgmma-products\n"));
    CHECK(contains(place.text("bench.log"),
                   "bench.qwen3-4b.chunk.json --fused-decodes --wgmma-products\n"));
    // Measured runs, too, in a later call.
    CHECK(place.check("decisions", "", "--resume").exit_code == 0);
    CHECK(contains(place.text("decisions.runs.log"),
                   "--set cuda.fused_decodes=true --set cuda.wgmma_products=true"));
  }
  SECTION("one alone where together they gain less") {
    const Place place;
    CHECK(place.check("tests,options", "apart").exit_code == 0);
    CHECK(contains(place.text("options.log"), "options.together.json"));
    CHECK(contains(place.text("state.json"), R"("chosen": [
  "fused_decodes"
 ])"));
  }
  SECTION("but for one that crashes") {
    const Place place;
    CHECK(place.check("tests,options,bench", "--fused-decodes").exit_code == 1);
    CHECK(contains(place.text("README.md"), "| options | failed: fused_decodes (exit status -11)"));
    CHECK_FALSE(contains(place.text("options.log"), "options.together.json"));
    CHECK(contains(place.text("bench.log"), "bench.qwen3-4b.chunk.json --wgmma-products\n"));
  }
}

TEST_CASE("gpu_check chooses options that are proven", "[tools][gpu_check]") {
  SECTION("not one whose tests crash or hang, which is not timed") {
    for (const char* fault : {"crash=test_gpu_decode_gemm", "hang=test_gpu_decode_gemm"}) {
      const Place place;
      CHECK(place.check("tests,options", fault, "--clock-speed 20").exit_code == 1);
      const std::string log = place.text("options.log");
      CHECK(contains(log, "fused_decodes is not timed: test_gpu_decode_gemm "));
      CHECK_FALSE(contains(log, "--fused-decodes"));
      CHECK(contains(log, "options.wgmma_attention.json --wgmma-attention\n"));
      CHECK(contains(log, "enabled in later stages: wgmma_products\n"));
    }
  }
  SECTION("not one whose tests fail or are slow, which is timed") {
    for (const char* fault : {"fail=test_gpu_decode_gemm", "slow-tests=test_gpu_decode_gemm"}) {
      const Place place;
      CHECK(place.check("tests,options", fault, "--clock-speed 20").exit_code == 1);
      const std::string log = place.text("options.log");
      CHECK(contains(log, "fused_decodes is timed, but cannot be chosen: test_gpu_decode_gemm "));
      CHECK(contains(log, "options.fused_decodes.json --fused-decodes\n"));
      CHECK(contains(log, "enabled in later stages: wgmma_products\n"));
      CHECK(contains(place.text("options.fused_decodes.json"), "\"median_us\": 7"));
    }
  }
  SECTION("not one whose bench ended early") {
    const Place place;
    CHECK(place.check("tests,options", "partial").exit_code == 1);
    CHECK(
        contains(place.text("README.md"), "| options | failed: fused_decodes (exit status 1) | "));
    CHECK(contains(place.text("options.log"), "enabled in later stages: wgmma_products\n"));
  }
  SECTION("anew, once a test has ended that they waited for") {
    const Place place;
    CHECK(place.check("tests,options", "slow-tests=test_gpu_decode_gemm", "--clock-speed 20")
              .exit_code == 1);
    CHECK(contains(place.text("README.md"),
                   "| options | waiting: tests of fused_decodes have not ended | "));
    CHECK(place.check("tests,options", "", "--resume").exit_code == 0);
    CHECK(contains(place.text("options.log"),
                   "enabled in later stages: fused_decodes, wgmma_products\n"));
  }
  SECTION("none where no test has run") {
    const Place place;
    CHECK(place.check("options", "").exit_code == 1);
    CHECK(contains(place.text("options.log"), "options.wgmma_products.json --wgmma-products\n"));
    CHECK(contains(place.text("options.log"), "enabled in later stages: none\n"));
  }
}

TEST_CASE("gpu_summary puts what is off by default beside the default", "[tools][gpu_check]") {
  const Place place;
  write_bench(place, "llama-3.2-3b", 0.5, 500);
  REQUIRE(summarize(place).exit_code == 0);
  CHECK_FALSE(contains(place.text("findings.md"), "off by default"));
  write_bench(place, "default", 0.5, 500, "options", ".json");
  write_bench(place, "wgmma_attention", 0.625, 500, "options", ".json");
  place.scratch.write("out/unknown/state.json", R"({"chosen": ["wgmma_attention"]})");
  const CommandResult result = summarize(place);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  const std::string findings = place.text("findings.md");
  CHECK(contains(findings, "All later stages ran with `cuda.wgmma_attention`."));
  CHECK(contains(findings,
                 "| 8 decodes at 2k | 0.200 (50.0% of the floor) | 0.160 (62.5% of the floor) |"));
  CHECK(contains(findings, "| chunk of 2048 after 16384 | "));
}

TEST_CASE("gpu_check times the linear layers of each model", "[tools][gpu_check]") {
  SECTION("behind the options, with early launches where these are chosen") {
    const Place place;
    CHECK(place.check("start", "").exit_code == 0);
    std::string state = place.text("state.json");
    const std::string none = "\"chosen\": []";
    state.replace(state.find(none), none.size(),
                  R"("chosen": ["early_launches", "wgmma_products"])");
    place.scratch.write("out/unknown/state.json", state);
    const CommandResult result = place.check("products", "", "--resume");
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(contains(place.text("README.md"), "| products | passed | "));
    CHECK(contains(place.text("products.log"),
                   "bench qwen3-4b --products --repeats 3 --json " + place.out +
                       "/unknown/products.qwen3-4b.json --early-launches\n"));
    CHECK(contains(place.text("findings.md"), "| gemma-3-1b | down | 64 | 5.00 | 10.00 | "));
  }
  SECTION("of others when one crashes") {
    const Place place;
    const CommandResult result = place.check("options,products,bench", "qwen3-4b --products");
    CHECK(result.exit_code == 1);
    const std::string& out = result.out;
    CHECK(contains(out, "products: failed: qwen3-4b (exit status -11) "));
    CHECK(contains(place.text("products.log"), "products.gemma-3-1b.json\n"));
    CHECK(out.find("gpu_check: options: ") < out.find("gpu_check: products: "));
    CHECK(out.find("gpu_check: products: ") < out.find("gpu_check: bench: "));
  }
}

TEST_CASE("gpu_summary says what the choice of tiles loses", "[tools][gpu_check]") {
  const Place place;
  // Kernels of a point: cuBLASLt's, and tiles of rising columns, of which the first is chosen.
  const auto point = [](int tokens, const std::string& invariant, const std::vector<int>& tiles) {
    std::ostringstream text;
    text << R"({"product": "down", "tokens": )" << tokens << R"(, "floor_us": 2.5, "kernels": [)"
         << R"({"kernel": "cublaslt", "us": 1}, )" << invariant;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      text << (i > 0 ? ", " : "") << R"({"kernel": "prefill_gemm", "rows": 128, "cluster": 2)"
           << R"(, "columns": )" << 32 * (i + 1) << R"(, "us": )" << tiles[i] << R"(, "chosen": )"
           << (i == 0 ? "true" : "false") << "}";
    }
    return text.str() + "]}";
  };
  const std::string ten = R"({"kernel": "cublaslt invariant", "us": 10}, )";
  const auto write = [&](const std::string& model, const std::string& points) {
    place.scratch.write("out/unknown/products." + model + ".json",
                        "{\"model\": \"" + model + "\", \"points\": [" + points + "]}");
  };
  // A point that has one tile only, one in the middle of which the bench ended, and one without an
  // invariant product.
  write("one", point(1, ten, {40}) + "," + point(64, ten, {20, 5}) + "," + point(128, "", {9, 9}));
  write("two", point(512, ten, {5, 8, 10}) + "," + point(2048, ten, {50, 25}));
  const CommandResult result = summarize(place);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  const std::string findings = place.text("findings.md");
  CHECK(contains(
      findings,
      "\n| one | down | 64 | 2.50 | 10.00 | 20.00 (128 x 32 x 2) | 5.00 (128 x 64 x 2) |"));
  CHECK(contains(findings, "\n| one | down | 128 | 2.50 | not measured | 9.00 "));
  CHECK(contains(findings, "\n| two | down | 2048 | 2.50 | 10.00 | 50.00 "));
  CHECK_FALSE(contains(findings, "| one | down | 1 |"));
  // 4, 1 and 1; then 4, 2, 0.5 and 5.
  CHECK(
      contains(findings,
               "\nGeometric means: chosen / best tile 1.587 over 3 points; chosen tile / cuBLASLt "
               "invariant 2.115 over 4 points.\n"));
  write("one", "");
  write("two", "");
  REQUIRE(summarize(place).exit_code == 0);
  CHECK(contains(place.text("findings.md"), "chosen / best tile not measured; "));
}

TEST_CASE("gpu_check publishes measured beside simulated, call by call",
          "[tools][gpu_check][slow]") {
  Place place;
  place.install("NVIDIA H200", "h200");
  const std::string models = "--models tiny-llama";
  CHECK(place.check("published", "prefix_caching", models).exit_code == 1);
  std::string readme = place.text("README.md");
  CHECK(contains(readme, "| published | failed: tiny-llama prefix_caching: the measured run | "));
  const std::string first = place.text("published/tiny-llama/chunked_prefill/validation.json");
  place.scratch.write("out/h200/published/tiny-llama/chunked_prefill/kept", "");
  CHECK(place.check("published", "", models).exit_code == 2);  // the folder is there
  const CommandResult again = place.check("published", "", models + " --resume");
  INFO(again.out << again.err);
  CHECK(again.exit_code == 0);
  readme = place.text("README.md");
  CHECK(contains(readme, "| published | passed | "));
  CHECK(place.text("published/tiny-llama/chunked_prefill/validation.json") == first);
  const std::string page = place.text("published/README.md");
  for (const char* name : {"unchunked", "chunked-128", "chunked-2048", "budget-128", "slo"}) {
    CHECK(contains(page, "\n| " + std::string(name) + " | "));
  }
  CHECK(contains(page, "\n| cached-512 | "));
  CHECK(contains(page, "## tiny-llama, prefix_caching"));
  // Both sides are one simulation here, without calibration.
  CHECK(contains(page, "by the roofline, not calibrated; worst "));
  CHECK(verdict_of(page, "tiny-llama chunked_prefill: simulated figures") == "PASS");
  CHECK(verdict_of(page, "tiny-llama baseline: the same order") == "PASS");
  CHECK(contains(page, " of "));
  CHECK(std::filesystem::exists(place.out + "/h200/published/tiny-llama/baseline/report.html"));
  const std::string scenario = place.text("published/tiny-llama/chunked_prefill/scenario.yaml");
  CHECK(contains(scenario, "rate: 12}"));  // eight times 1.5
  // Stages that passed are not run again.
  CHECK(place.check("published", "baseline", models + " --resume").exit_code == 0);
}

}  // namespace TEST_FILE
