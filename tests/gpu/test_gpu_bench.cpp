// SPDX-License-Identifier: Apache-2.0
// `metronome bench`: its points, its floors, what it skips and what it refuses. Times are only
// checked for being there: under the emulator they say nothing.
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "gpu/bench/bench.h"
#include "gpu/plan/cuda_config.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Two layers of 130 positions, one of them with a window.
constexpr const char* kTinyModel = R"({"architectures": ["Gemma3ForCausalLM"],
  "model_type": "gemma3_text", "num_hidden_layers": 2, "hidden_size": 64,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 72,
  "vocab_size": 128, "max_position_embeddings": 130, "sliding_window": 40,
  "sliding_window_pattern": 2, "query_pre_attn_scalar": 64, "rms_norm_eps": 1e-6,
  "tie_word_embeddings": true})";

// Keys and values of a token take 64 KiB, and next to nothing else does.
constexpr const char* kLargeCache = R"({"architectures": ["LlamaForCausalLM"],
  "model_type": "llama", "num_hidden_layers": 64, "hidden_size": 8, "num_attention_heads": 1,
  "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 8, "vocab_size": 8,
  "max_position_embeddings": 16384, "rms_norm_eps": 1e-6, "tie_word_embeddings": true})";

// A model's config.json, and algorithms kept where no other run finds them.
class BenchFolder {
 public:
  explicit BenchFolder(const char* config) : model_(folder_.write("tiny/config.json", config)) {
    const char* before = ::getenv("XDG_CACHE_HOME");
    if (before != nullptr) cache_before_ = before;
    ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;
  ~BenchFolder() {
    if (cache_before_.empty()) {
      ::unsetenv("XDG_CACHE_HOME");
    } else {
      ::setenv("XDG_CACHE_HOME", cache_before_.c_str(), 1);
    }
  }

  const std::string& model() const { return model_; }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

 private:
  ScratchFolder folder_;
  std::string model_;
  std::string cache_before_;
};

Scenario scenario_of(const BenchFolder& folder) {
  Scenario scenario;
  scenario.model = folder.model();
  scenario.weights = Weights::Random;
  scenario.engine.max_num_seqs = 8;
  scenario.engine.max_model_len = 16384;
  return scenario;
}

bool is_same(const BenchCase& a, const BenchCase& b) {
  return a.num_decodes == b.num_decodes && a.context == b.context && a.chunk_size == b.chunk_size &&
         a.prefix == b.prefix;
}

std::vector<ScheduledChunk> chunks_of(const BenchCase& what) {
  std::vector<ScheduledChunk> chunks;
  for (std::int32_t i = 0; i < what.num_decodes; ++i) {
    chunks.push_back({RequestId{0}, what.context - 1, 1, ChunkKind::Decode, true});
  }
  if (what.chunk_size > 0) {
    chunks.push_back({RequestId{0}, what.prefix, what.chunk_size, ChunkKind::Prefill, true});
  }
  return chunks;
}

void check_point(const BenchReport& report, const BenchPoint& point, const BenchCase& what) {
  INFO(what.num_decodes << " decodes at " << what.context << ", chunk " << what.chunk_size
                        << " after " << what.prefix);
  CHECK(is_same(point.what, what));
  CHECK(point.fastest_us > 0);
  CHECK(point.median_us >= point.fastest_us);
  CHECK(point.enqueue_us > 0);
  const FloorWork work = floor_work(report.model, chunks_of(what));
  CHECK(point.floor_us == Approx(step_floor_s(work, report.rates) * 1e6));
  const double memory_us = work.bytes / report.rates.copy_bytes_per_s * 1e6;
  CHECK(point.is_memory_bound == (point.floor_us == Approx(memory_us)));
}

TEST_CASE("every case gives a point with its floor, or is skipped for a reason", "[gpu][bench]") {
  const BenchFolder folder(kTinyModel);
  const BenchFn bench = make_gpu_bench();
  REQUIRE(bench);
  const std::vector<BenchCase> runnable = {
      {.num_decodes = 1, .context = 1},
      {.num_decodes = 8, .context = 130},
      {.num_decodes = 3, .context = 100},
      {.chunk_size = 1, .prefix = 0},
      {.chunk_size = 130, .prefix = 0},
      {.chunk_size = 20, .prefix = 110},
      {.num_decodes = 7, .context = 33, .chunk_size = 17, .prefix = 5},
  };
  const std::vector<BenchCase> too_long = {
      {.num_decodes = 1, .context = 131},
      {.chunk_size = 21, .prefix = 110},
      {.num_decodes = 1, .context = 8192, .chunk_size = 2048, .prefix = 8192},
  };
  const std::vector<BenchCase> too_many = {
      {.num_decodes = 9, .context = 2},
      {.num_decodes = 8, .context = 2, .chunk_size = 1},
  };
  std::vector<BenchCase> cases = too_long;
  cases.insert(cases.end(), runnable.begin(), runnable.end());
  cases.insert(cases.end(), too_many.begin(), too_many.end());

  for (const bool uses_graphs : {true, false}) {
    INFO((uses_graphs ? "graphs" : "no graphs"));
    Scenario scenario = scenario_of(folder);
    scenario.backends.edit<CudaConfig>().graphs = uses_graphs;
    std::int32_t num_polls = 0;
    const BenchReport report =
        bench(scenario, cases, 2, [&num_polls](const BenchReport&) { ++num_polls; });
    CHECK(report.model.name == "tiny");
    CHECK(report.model.n_window_layers() == 1);
    CHECK(!report.device.empty());
    CHECK(report.rates.copy_bytes_per_s > 0);
    CHECK(report.rates.matrix_flops_per_s > 0);
    CHECK(report.kv_tokens == 8 * 9 * 16);  // 8 decodes at 130, in blocks of 16
    CHECK(num_polls >= static_cast<std::int32_t>(cases.size()));
    REQUIRE(report.points.size() == runnable.size());
    for (std::size_t i = 0; i < runnable.size(); ++i) {
      check_point(report, report.points[i], runnable[i]);
    }
    REQUIRE(report.skipped.size() == too_long.size() + too_many.size());
    for (std::size_t i = 0; i < too_long.size(); ++i) {
      CHECK(is_same(report.skipped[i].what, too_long[i]));
      CHECK(report.skipped[i].why == "a context has at most 130 positions");
    }
    for (std::size_t i = 0; i < too_many.size(); ++i) {
      const SkippedCase& skipped = report.skipped[too_long.size() + i];
      CHECK(is_same(skipped.what, too_many[i]));
      CHECK(skipped.why == "a step has at most 8 sequences");
    }
  }
}

TEST_CASE("a bench keeps to the scenario's limits and the GPU's memory", "[gpu][bench]") {
  const BenchFn bench = make_gpu_bench();
  SECTION("a pass of max_pass_tokens, contexts of max_model_len") {
    const BenchFolder folder(kTinyModel);
    Scenario scenario = scenario_of(folder);
    scenario.backends.edit<CudaConfig>().max_pass_tokens = 16;
    scenario.engine.max_model_len = 60;
    const BenchReport report = bench(scenario,
                                     {{.chunk_size = 16},
                                      {.chunk_size = 17},
                                      {.num_decodes = 1, .context = 2, .chunk_size = 16},
                                      {.num_decodes = 1, .context = 61}},
                                     1, {});
    REQUIRE(report.points.size() == 1);
    REQUIRE(report.skipped.size() == 3);
    CHECK(report.skipped[0].why == "a step has at most 16 tokens");
    CHECK(report.skipped[1].why == "a step has at most 16 tokens");
    CHECK(report.skipped[2].why == "a context has at most 60 positions");
  }
  SECTION("half a terabyte of keys and values") {
    const BenchFolder folder(kLargeCache);
    Scenario scenario = scenario_of(folder);
    scenario.engine.max_num_seqs = 512;
    scenario.backends.edit<CudaConfig>().graphs = false;
    const BenchReport report =
        bench(scenario, {{.num_decodes = 512, .context = 16384}, {.num_decodes = 1, .context = 2}},
              1, {});
    REQUIRE(report.points.size() == 1);
    REQUIRE(report.skipped.size() == 1);
    CHECK(report.skipped[0].why.starts_with("the GPU has memory for the KV of "));
    CHECK(report.kv_tokens == 16);
  }
}

TEST_CASE("a bench refuses what cannot be computed, in one sentence", "[gpu][bench]") {
  const BenchFn bench = make_gpu_bench();
  const auto error = [&bench](const std::string& model) {
    Scenario scenario;
    scenario.model = model;
    scenario.weights = Weights::Random;
    return error_of([&] { bench(scenario, {}, 1, {}); });
  };
  CHECK(error("tiny-llama") == "model: head_dim: is 32; allowed: 64, 128 or 256");
  CHECK(error("nobody").starts_with("model: unknown name 'nobody'; allowed: "));
  // 1.6 TB of weights.
  const ScratchFolder folder;
  const std::string huge = folder.write("huge.json", R"({"architectures": ["LlamaForCausalLM"],
    "model_type": "llama", "num_hidden_layers": 400, "hidden_size": 16384,
    "num_attention_heads": 128, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 28672, "vocab_size": 128, "max_position_embeddings": 100,
    "tie_word_embeddings": true})");
  CHECK(error(huge).starts_with("model: weights and activations of "));
}

TEST_CASE("what poll throws ends a bench", "[gpu][bench]") {
  const BenchFolder folder(kTinyModel);
  std::int32_t num_polls = 0;
  const auto stop_late = [&num_polls](const BenchReport&) {
    if (++num_polls == 4) throw ConfigError("stopped");
  };
  CHECK(error_of([&] {
          make_gpu_bench()(scenario_of(folder), {{.num_decodes = 1, .context = 1}}, 1, stop_late);
        }) == "stopped");
  CHECK(num_polls == 4);
}

TEST_CASE("metronome bench writes a table and a report", "[gpu][bench]") {
  const BenchFolder folder(kTinyModel);
  const std::string arguments = "bench '" + folder.model() + "' --repeats 1 --json '" +
                                folder.path("bench.json") + "' --invariance none";
  const CommandResult result = run_metronome(arguments);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(result.out.starts_with("model       tiny\ndevice      "));
  CHECK(result.out.find("\n32 decodes at 128 ") != std::string::npos);
  CHECK(result.out.find("\nchunk 128 after 0 ") != std::string::npos);
  CHECK(result.out.find("\n32 decodes at 2,048, chunk 512 after 2,048: skipped, a context has at "
                        "most 130 positions\n") != std::string::npos);

  const auto report = Json::parse(read_text_file(folder.path("bench.json")));
  CHECK(report["metronome_bench"] == 1);
  CHECK(report["model"] == "tiny");
  CHECK(report["invariance"] == "none");
  CHECK(report["graphs"] == true);
  CHECK(report["repeats"] == 1);
  CHECK(report["shape"]["n_layers"] == 2);
  CHECK(report["shape"]["sliding_window"] == 40);
  CHECK(report["shape"]["is_gelu"] == true);
  CHECK(report["copy_bytes_per_s"].get<double>() > 0);
  CHECK(report["matrix_flops_per_s"].get<double>() > 0);
  REQUIRE(report["points"].size() == 6);  // 5 batches at context 128, a chunk of 128
  CHECK(report["points"].size() + report["skipped"].size() == 39);
  for (const auto& point : report["points"]) {
    CHECK(point["fastest_us"].get<double>() > 0);
    CHECK(point["median_us"].get<double>() >= point["fastest_us"].get<double>());
    CHECK(point["floor_us"].get<double>() > 0);
    CHECK((point["bound"] == "memory" || point["bound"] == "arithmetic"));
  }
  CHECK(report["points"][4]["decodes"] == 128);
  CHECK(report["points"][4]["context"] == 128);
  CHECK(report["points"][5]["chunk"] == 128);
  CHECK(report["skipped"][0]["context"] == 2048);
  CHECK(report["skipped"][0]["why"] == "a context has at most 130 positions");
}

TEST_CASE("metronome bench says what is wrong, and ends with 2", "[gpu][bench]") {
  const auto check_error = [](const std::string& arguments, const std::string& expected) {
    const CommandResult result = run_metronome("bench " + arguments);
    INFO(arguments << ": " << result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(result.err.starts_with("metronome: error: " + expected));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  };
  check_error("tiny-llama", "model: head_dim: is 32; allowed: 64, 128 or 256\n");
  check_error("tiny-lama",
              "model: unknown name 'tiny-lama', did you mean 'tiny-llama'?; allowed: ");
  check_error("llama-3.2-3b --device 99",
              "cuda.device: 99 is not a GPU of this machine; allowed: ");
  check_error("llama-3.2-3b --invariance some",
              "--invariance: 'some' is not an invariance; allowed: ");
  check_error("llama-3.2-3b qwen3-4b", "bench: give one model, not 2");
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
