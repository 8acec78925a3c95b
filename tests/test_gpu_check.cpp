// tools/gpu_check with programs that only look like those of a build with CUDA: what it makes of
// stages that fail, crash or hang. Measured runs are simulations here.
#include <sys/stat.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

using namespace metronome::testing;

namespace {

// Runs what it is told to, simulated. Two options gain, and more together, unless $FAULT is
// "apart". $FAULT may also be an argument to crash at, "uneven", or "slow".
constexpr const char* kMetronome = R"(#!/bin/bash
[[ "$1" == --version ]] && { echo "metronome 0"; exit 0; }
[[ "$FAULT" == uneven && " $* " == *" cuda.invariance=chunk "* ]] && exit 2
[[ "$FAULT" == uneven && " $* " == *" --invariance chunk "* ]] && exit 2
[[ -n "$FAULT" && " $* " == *"$FAULT"* ]] && kill -SEGV $$
if [[ " $* " == *" --products "* ]]; then
  [[ "$FAULT" == slow ]] && { trap 'echo "{\"points\": []}" >"$7"; exit 143' TERM; sleep 100; }
  echo "{\"model\": \"$2\", \"points\": [{\"product\": \"down\", \"tokens\": 64, \"floor_us\": 5,
    \"kernels\": [{\"kernel\": \"cublaslt invariant\", \"us\": 10}, {\"kernel\": \"prefill_gemm\",
    \"us\": 8, \"rows\": 64, \"columns\": 96, \"cluster\": 1, \"chosen\": true}]}]}" >"$7"
  exit 0
fi
if [[ "$1" == bench ]]; then
  scale=10; [[ "$4" == none ]] && scale=8
  [[ " $* " == *" --fused-decodes "* ]] && scale=7
  [[ " $* " == *" --early-launches "* ]] && scale=11
  if [[ " $* " == *" --wgmma-products "* ]]; then
    scale=$((scale - 1))
    [[ "$FAULT" == apart ]] && scale=9
  fi
  echo "{\"model\": \"$2\", \"invariance\": \"$4\", \"points\": [
    {\"decodes\": 1, \"context\": 128, \"chunk\": 0, \"prefix\": 0, \"median_us\": $scale},
    {\"decodes\": 32, \"context\": 128, \"chunk\": 64, \"prefix\": 0,
     \"median_us\": $scale}]}" >"$6"
  exit 0
fi
exec "$REAL" "${@/--backend=cuda/--backend=sim}"
)";
constexpr const char* kTests = R"(#!/bin/bash
[[ "$FAULT" == hang && "$2" == *norm* ]] && sleep 100
[[ "$FAULT" == crash && ( "$2" == *norm* || "$2" == *decode_gemm* ) ]] && kill -SEGV $$
echo "ran $2"
)";

struct Place {
  ScratchFolder scratch;
  std::string out = scratch.path() + "/out";

  Place() {
    for (const auto& [name, text] :
         {std::pair{"metronome", kMetronome}, std::pair{"metronome_gpu_tests", kTests}}) {
      ::chmod(scratch.write(std::string("build/") + name, text).c_str(), 0755);
    }
  }

  CommandResult check(const std::string& only, const std::string& fault,
                      const std::string& options = "") const {
    return run_program("tools/gpu_check",
                       "--build '" + scratch.path() + "/build' --out '" + out +
                           "' --requests 6 --only " + only + " " + options,
                       "FAULT='" + fault + "' REAL='" + metronome_program() + "'");
  }
  std::string text(const std::string& name) const { return read_text_file(out + "/" + name); }
};

}  // namespace

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

TEST_CASE("gpu_check goes on without an invariance that does not hold", "[tools][gpu_check]") {
  const Place place;
  const CommandResult result = place.check("start,bench,decisions", "uneven");
  CHECK(result.exit_code == 1);
  const std::string readme = place.text("README.md");
  CHECK(contains(readme, "| start | failed: invariance does not hold; what follows ran with "));
  CHECK(contains(readme, "| bench | passed | "));
  CHECK(contains(readme, "| decisions | passed | "));
}

TEST_CASE("a crash costs gpu_check nothing but itself", "[tools][gpu_check]") {
  SECTION("of a run") {
    const Place place;
    CHECK(place.check("start,bench,decisions", "qwen3-4b").exit_code == 1);
    const std::string readme = place.text("README.md");
    CHECK(contains(readme, "| bench | failed: qwen3-4b (exit status -11) | "));
    CHECK(contains(readme, "| decisions | failed: qwen3-4b chunked_prefill: the measured run | "));
    CHECK(contains(readme, "mixed steps: 25.0 %"));
    CHECK(contains(place.text("decisions.log"), "gemma-3-1b/prefix_caching"));
    CHECK_FALSE(contains(place.text("decisions.log"), "differ"));
  }
  SECTION("of a test") {
    const Place place;
    CHECK(place.check("tests", "crash").exit_code == 1);
    CHECK(contains(place.text("README.md"), "| tests | failed: test_gpu_norm (exit status -11); "));
    CHECK(contains(place.text("tests.log"), "ran [#test_step_timer]~[slow]\n"));
    // Another call runs what did not pass, and nothing else.
    CHECK(place.check("tests", "", "--resume").exit_code == 0);
    const std::string log = place.text("tests.log");
    CHECK(log.find("ran [#test_step_timer]~") == log.rfind("ran [#test_step_timer]~"));
    CHECK(contains(log, "ran [#test_gpu_norm]~[slow]\n"));
    CHECK(contains(place.text("README.md"), "| tests | passed | "));
  }
}

TEST_CASE("what hangs is ended, and said, before time is up", "[tools][gpu_check]") {
  const Place place;
  const CommandResult result = place.check("tests,slow", "hang", "--budget 2");
  CHECK(result.exit_code == 1);
  const std::string readme = place.text("README.md");
  CHECK(contains(readme, "| tests | failed: test_gpu_norm (longer than "));
  CHECK(contains(readme, "test_step_timer (no time was left)"));
  CHECK(contains(readme, "| slow | failed: "));
}

TEST_CASE("what takes too long may hand over what it has", "[tools][gpu_check]") {
  const Place place;
  CHECK(place.check("products", "slow", "--models llama-3.2-3b --budget 3").exit_code == 1);
  CHECK(contains(place.text("README.md"), "| products | failed: llama-3.2-3b (longer than "));
  CHECK(place.text("products.llama-3.2-3b.json") == "{\"points\": []}\n");
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
      "out/" + name + "." + model + end,
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
  return run_program("tools/gpu_summary", "--published '" + place.out + "'");
}

}  // namespace

TEST_CASE("gpu_summary says of every promise whether it was shown", "[tools][gpu_check]") {
  const Place place;
  write_bench(place, "llama-3.2-3b", 0.81, 500);
  write_bench(place, "gemma-3-1b", 0.61, 300);
  place.scratch.write("out/torch.json", R"({"models": [{"points": [{"torch_by_ours": 1.5},
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
  CHECK(contains(findings, "| PASS | 500 TFLOP/s "));
  CHECK(contains(findings, "| FAIL | 300 TFLOP/s "));
  CHECK(contains(findings, "| FAIL | 1 of 2 steps; the worst takes 1.25 of PyTorch's time |"));
  CHECK(verdict_of(findings, "chunk-invariance") == "not measured");
  CHECK(verdict_of(findings, "p99 ITL 10 times") == "not measured");
  CHECK(verdict_of(findings, "simulated figures") == "not measured");
  const Place empty;
  empty.scratch.write("out/nothing", "");
  CHECK(summarize(empty).exit_code == 0);
  CHECK_FALSE(contains(empty.text("findings.md"), "PASS"));
}

TEST_CASE("gpu_check goes on with what of the options gains most", "[tools][gpu_check]") {
  SECTION("of those that gain, together") {
    const Place place;
    CHECK(place.check("options,bench", "").exit_code == 0);
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
    CHECK(place.check("options", "apart").exit_code == 0);
    CHECK(contains(place.text("options.log"), "options.together.json"));
    CHECK(contains(place.text("state.json"), R"("chosen": [
    "fused_decodes"
  ])"));
  }
  SECTION("but for one that crashes") {
    const Place place;
    CHECK(place.check("options,bench", "--fused-decodes").exit_code == 1);
    CHECK(contains(place.text("README.md"), "| options | failed: fused_decodes (exit status -11)"));
    CHECK_FALSE(contains(place.text("options.log"), "options.together.json"));
    CHECK(contains(place.text("bench.log"), "bench.qwen3-4b.chunk.json --wgmma-products\n"));
  }
  SECTION("but for one whose tests fail") {
    const Place place;
    CHECK(place.check("tests,options", "crash").exit_code == 1);
    CHECK_FALSE(contains(place.text("options.log"), "--fused-decodes"));
    CHECK(contains(place.text("options.log"), "options.wgmma_attention.json --wgmma-attention\n"));
  }
}

TEST_CASE("gpu_summary puts what is off by default beside the default", "[tools][gpu_check]") {
  const Place place;
  write_bench(place, "llama-3.2-3b", 0.5, 500);
  REQUIRE(summarize(place).exit_code == 0);
  CHECK_FALSE(contains(place.text("findings.md"), "off by default"));
  write_bench(place, "default", 0.5, 500, "options", ".json");
  write_bench(place, "wgmma_attention", 0.625, 500, "options", ".json");
  place.scratch.write("out/state.json", R"({"chosen": ["wgmma_attention"]})");
  const CommandResult result = summarize(place);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  const std::string findings = place.text("findings.md");
  CHECK(contains(findings, "All stages behind it ran with `cuda.wgmma_attention`."));
  CHECK(contains(findings,
                 "| 8 decodes at 2k | 0.200 (50.0% of the floor) | 0.160 (62.5% of the floor) |"));
  CHECK(contains(findings, "| chunk of 2048 behind 16384 | "));
}

TEST_CASE("gpu_check times the linear layers of each model", "[tools][gpu_check]") {
  SECTION("behind the options, with early launches where these are chosen") {
    const Place place;
    place.scratch.write("out/state.json", R"({"invariance": "chunk", "done": [], "verdicts": {},
      "chosen": ["early_launches", "wgmma_products"]})");
    const CommandResult result = place.check("products", "", "--resume");
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(contains(place.text("README.md"), "| products | passed | "));
    CHECK(contains(place.text("products.log"), "bench qwen3-4b --products --repeats 3 --json " +
                                                   place.out +
                                                   "/products.qwen3-4b.json --early-launches\n"));
    CHECK(contains(place.text("findings.md"), "| gemma-3-1b | down | 64 | 5.00 | 10.00 | "));
  }
  SECTION("of others when one crashes") {
    const Place place;
    const CommandResult result = place.check("products,options,bench", "qwen3-4b --products");
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
    place.scratch.write("out/products." + model + ".json",
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

TEST_CASE("gpu_check publishes measured beside simulated, call by call", "[tools][gpu_check]") {
  const Place place;
  const std::string models = "--models tiny-llama";
  // A budget for the first piece at most: the rest is said to be missing.
  CHECK(place.check("published", "prefix_caching", models).exit_code == 1);
  std::string readme = place.text("README.md");
  CHECK(contains(readme, "| published | failed: tiny-llama prefix_caching: the measured run | "));
  const std::string first = place.text("published/tiny-llama/chunked_prefill/validation.json");
  place.scratch.write("out/published/tiny-llama/chunked_prefill/kept", "");
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
  CHECK(std::filesystem::exists(place.out + "/published/tiny-llama/baseline/report.html"));
  const std::string scenario = place.text("published/tiny-llama/chunked_prefill/scenario.yaml");
  CHECK(contains(scenario, "rate: 12}"));  // eight times 1.5
  // What passed is not run again.
  CHECK(place.check("published", "baseline", models + " --resume").exit_code == 0);
}
