// SPDX-License-Identifier: Apache-2.0
// --backend=cuda from the scenario to the result, where the GPU is an emulator: what is refused and
// how, where memory goes, and the shipped workloads end to end.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "gpu/emulator/cuda_emulator.h"
#include "gpu/emulator/emulated_gemm.h"
#include "gpu/engine/cuda_backend.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using namespace testing;

const std::string kModels = testing::source_dir() + "/tests/fixtures/models_bf16/";
constexpr std::size_t kMiB = 1 << 20;

// A folder for a scenario and for what the backend keeps; the device is as new.
struct Place {
  Place() {
    emulator::reset();
    emulator::set_memory_limit(256 * kMiB);
    ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  }
  ~Place() {
    emulator::set_gemm_algorithms(emulator::kAllGemmAlgorithms);
    emulator::reset();
  }

  Scenario scenario(const std::string& keys,
                    const std::string& model = kModels + "llama-64-llama3") const {
    const std::string text = "model: " + model + "\n" + keys +
                             "\nworkload: {num_requests: 3, arrivals: {process: burst}, "
                             "prompt_tokens: {distribution: fixed, value: 40}, "
                             "output_tokens: {distribution: fixed, value: 4}}\n";
    return load_scenario(folder.write("case.yaml", text), {}, std::nullopt, "cuda").variants.at(0);
  }

  ScratchFolder folder;
};

constexpr const char* kSmall = "engine: {max_num_seqs: 4, max_model_len: 128}";

std::string refusal(const Place& place, const std::string& keys,
                    const std::string& model = kModels + "llama-64-llama3") {
  const Scenario scenario = place.scenario(keys, model);
  return error_of<ConfigError>([&] { make_cuda_backend()->prepare(scenario); });
}

TEST_CASE("what keeps a scenario from a GPU is one sentence", "[gpu_backend]") {
  const Place place;
  CHECK(contains(refusal(place, kSmall, "tiny-llama"),
                 "case.yaml:1: model: cannot be computed here: head_dim: is 32; allowed: 64, 128 "
                 "or 256"));
  CHECK(contains(refusal(place, "cuda: {device: 1}"),
                 "case.yaml:2: cuda.device: 1 is not a GPU of this machine; allowed: 0 to 0"));
  CHECK(contains(refusal(place,
                         "engine: {max_num_seqs: 4, max_model_len: 128}\n"
                         "kv_cache: {num_blocks: 1000000}"),
                 "case.yaml:3: kv_cache.num_blocks: the KV cache takes"));
  const std::string too_large = refusal(place, kSmall, "llama-3.2-3b");
  CHECK(contains(too_large, "case.yaml:1: model: weights and activations of llama-3.2-3b take 6."));
  CHECK(contains(too_large, "GiB; CUDA emulator has 230.4 MiB available; allowed: less"));
  CHECK(contains(refusal(place, "engine: {max_model_len: 4096}"), "case.yaml:2: engine.max_model"));
  const std::string drafts = "scheduler: {policy: vllm}\nspeculative: ";
  CHECK(contains(refusal(place, drafts + "{method: ngram}\ncuda: {invariance: chunk}"),
                 "case.yaml:4: cuda.invariance: drafts are verified by the kernels of prompts, "
                 "which give a decode's bits only with full; allowed: full, or speculative.method "
                 "none"));
  CHECK(
      contains(refusal(place, drafts + "{method: draft_model, model: tiny-llama}"),
               "case.yaml:3: speculative.method: only drafts of a lookup are verified on the GPU; "
               "allowed: none, ngram, or --backend=cpu or sim"));

  const std::string wgmma = "cuda: {wgmma_attention: true}\n";
  CHECK(contains(refusal(place, wgmma + "kv_cache: {block_size: 12}\n" + kSmall),
                 "case.yaml:3: kv_cache.block_size: is 12; allowed with cuda.wgmma_attention: "
                 "multiples of 8"));
  emulator::set_compute_capability(8, 0);
  CHECK(contains(refusal(place, wgmma + kSmall),
                 "case.yaml:2: cuda.wgmma_attention: needs a GPU of compute capability 9.0; CUDA "
                 "emulator has 8.0; allowed: false"));
  CHECK(contains(refusal(place, "cuda: {wgmma_products: true}\n" + std::string(kSmall)),
                 "case.yaml:2: cuda.wgmma_products: needs a GPU of compute capability 9.0; CUDA "
                 "emulator has 8.0; allowed: false"));
  emulator::set_compute_capability(7, 5);
  CHECK(contains(refusal(place, kSmall),
                 "cuda.device: CUDA emulator has compute capability 7.5; allowed: 8.0 and later"));
  emulator::set_device_count_error(cudaErrorInsufficientDriver);
  const std::string no_driver = refusal(place, kSmall);
  CHECK(contains(no_driver, "backend cuda: no NVIDIA GPU can be used here ("));
  CHECK(contains(no_driver, "); allowed: --backend=sim or cpu"));
  for (const std::string& text : {too_large, no_driver}) {
    CHECK(std::count(text.begin(), text.end(), '\n') == 0);
  }
}

TEST_CASE("the KV cache takes what is left, and no more", "[gpu_backend]") {
  const Place place;
  // With prefix caching every block is of use.
  const std::string keys =
      std::string(kSmall) + "\nkv_cache: {enable_prefix_caching: true}\nscheduler: {policy: vllm}";
  std::int64_t all = 0;
  {
    const auto run = make_cuda_backend()->prepare(place.scenario(keys));
    all = run->setup.kv_cache.num_blocks;
    run->load([] {});
    const std::size_t taken = emulator::bytes_allocated();
    CHECK(taken <= 256 * kMiB * 9 / 10);
    CHECK(taken > 256 * kMiB * 8 / 10);
  }
  CHECK(emulator::bytes_allocated() == 0);

  const auto half =
      make_cuda_backend()->prepare(place.scenario(keys + "\ncuda: {gpu_memory_utilization: 0.5}"));
  CHECK(half->setup.kv_cache.num_blocks < all * 6 / 10);
  const auto fixed =
      make_cuda_backend()->prepare(place.scenario(keys + "\ncuda: {kv_cache_gib: 0.01}"));
  const std::int64_t block_bytes = 16 * fixed->model.kv_bytes_per_token();
  CHECK(fixed->setup.kv_cache.num_blocks == std::int64_t{10737418} / block_bytes);
}

TEST_CASE("a GPU that has less memory than it said fails with one sentence", "[gpu_backend]") {
  const Place place;
  const auto run = make_cuda_backend()->prepare(place.scenario(kSmall));
  emulator::set_memory_limit(1 * kMiB);
  const std::string error = error_of<ConfigError>([&] { run->load([] {}); });
  CHECK(contains(error, "case.yaml:1: model: "));
  CHECK(contains(error, " cannot be set up on the GPU (cudaMalloc: "));
  CHECK(std::count(error.begin(), error.end(), '\n') == 0);
}

// Says that invariance failed, in one line.
std::string invariance_error(const Place& place,
                             const std::string& model = kModels + "llama-64-llama3") {
  const auto run = make_cuda_backend()->prepare(place.scenario(kSmall, model));
  std::string error = error_of<ConfigError>([&] { run->load([] {}); });
  CAPTURE(error);
  CHECK(contains(error,
                 ": cuda.invariance: does not hold on this GPU with this version of cuBLASLt"));
  CHECK(std::count(error.begin(), error.end(), '\n') == 0);
  return error;
}

TEST_CASE("invariance that cannot hold is refused, and may be given up", "[gpu_backend]") {
  const Place place;
  emulator::set_memory_limit(1024 * kMiB);
  emulator::set_gemm_algorithms(emulator::kSplitInFloat | emulator::kSliced);
  CHECK(
      contains(invariance_error(place, "mini-llama"),
               "cuBLASLt has no algorithm that sums in the same order as for other row counts (of "
               "those with one accumulator, id 66 serves the most) for a product of 96 rows"));
  const std::string text = read_text_file(place.folder.path() + "/metronome/invariance.txt");
  CHECK(contains(text, "bfloat16 out\n  cuBLASLt has no algorithm that sums in the same order"));
  CHECK(contains(text, ", serves rows 16 32 48 64\n  16 rows:\n    1 of algo 66, digest "));
  CHECK(contains(text, "  96 rows:\n  128 rows:\n"));
  emulator::set_gemm_algorithms(emulator::kSplitInFloat);
  const auto none = make_cuda_backend()->prepare(
      place.scenario(std::string(kSmall) + "\ncuda: {invariance: none}", "mini-llama"));
  CHECK_NOTHROW(none->load([] {}));
}

// The self-test finds a fault that the choice of algorithms cannot see.
TEST_CASE("what the self-test found is kept", "[gpu_backend]") {
  const Place place;
  const std::string path = place.folder.path() + "/metronome/invariance.txt";
  emulator::set_gemm_algorithms(emulator::kUneven);
  const std::string error = invariance_error(place);
  CHECK(contains(error, " more parts differ for 67 tokens in chunks of 7, keys of layer 0 and "));
  CHECK(error.ends_with("in chunks of 1; the findings are in " + path + "; allowed: none"));
  const std::string text = read_text_file(path);
  CHECK(text.starts_with("CUDA emulator, "));
  CHECK(contains(text,
                 "\nllama-64-llama3, block_size 16, max_pass_tokens 512, early_launches false, "
                 "wgmma_attention false, wgmma_products false\n\nkeys of layer 0 and "));
  CHECK(contains(text, " more parts differ for 67 tokens in chunks of 7\nkeys of layer 0 and "));
  CHECK(contains(text, ", float32 out\n  algo 24, digest "));
  CHECK(contains(text, "    chosen: algo 24, tile 19, stages 0, split-k 1\n      digest "));
  CHECK(contains(text, " of their last 16\n"));

  // Once more, with algorithms from the store.
  REQUIRE(contains(read_text_file(place.folder.path() + "/metronome/gemm.json"), "algo 24"));
  std::filesystem::remove(path);
  CHECK(invariance_error(place) == error);
  CHECK(read_text_file(path) == text);
}

TEST_CASE("where nothing can be kept, standard error has what was found", "[gpu_backend]") {
  const Place place;
  emulator::set_gemm_algorithms(emulator::kUneven);
  ::setenv("XDG_CACHE_HOME", place.folder.write("file", "").c_str(), 1);
  std::ostringstream err;
  std::streambuf* const before = std::cerr.rdbuf(err.rdbuf());
  const std::string error = invariance_error(place);
  std::cerr.rdbuf(before);
  CHECK(error.ends_with("; the findings are on standard error; allowed: none"));
  CHECK(contains(err.str(), "in chunks of 1\n"));
  CHECK(contains(err.str(), "    chosen: algo 24, tile 19"));
}

TEST_CASE("engines of equal options show their invariance once", "[gpu_backend]") {
  const Place place;
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  const auto num_kernels = [&](const std::string& keys) {
    const std::int64_t before = emulator::num_kernels_executed();
    backend->prepare(place.scenario(keys))->load([] {});
    return emulator::num_kernels_executed() - before;
  };
  // Without graphs an engine runs nothing of its own accord.
  const std::string chunk = std::string(kSmall) + "\ncuda: {graphs: false}";
  const std::string full = std::string(kSmall) + "\ncuda: {graphs: false, invariance: full}";
  const std::string none = std::string(kSmall) + "\ncuda: {graphs: false, invariance: none}";
  const std::string larger_blocks = chunk + "\nkv_cache: {block_size: 32}";
  const std::int64_t num_loading = num_kernels(none);
  CHECK(num_kernels(none) == 0);
  const std::int64_t num_testing = num_kernels(chunk);
  CHECK(num_testing > 0);
  CHECK(num_kernels(chunk) == 0);
  CHECK(num_kernels(full) > 0);
  CHECK(num_kernels(larger_blocks) > 0);
  for (const std::string& keys : {chunk, full, larger_blocks}) CHECK(num_kernels(keys) == 0);
  // A model that is loaded anew may have other algorithms.
  const std::string shorter = "engine: {max_num_seqs: 4, max_model_len: 64}";
  num_kernels(shorter);
  CHECK(num_kernels(chunk) == num_loading + num_testing);
  CHECK(num_kernels(chunk) == 0);
}

TEST_CASE("a model without memory for the parts of wgmma is loaded anew", "[gpu_backend]") {
  const Place place;
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  backend->prepare(place.scenario(kSmall))->load([] {});
  const std::string keys = std::string(kSmall) + "\ncuda: {wgmma_attention: true}";
  CHECK_NOTHROW(backend->prepare(place.scenario(keys))->load([] {}));
}

TEST_CASE("an engine whose invariance failed is tested again", "[gpu_backend]") {
  const Place place;
  emulator::set_gemm_algorithms(emulator::kUneven);
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  for (int i = 0; i < 2; ++i) {
    const auto run = backend->prepare(place.scenario(kSmall));
    CHECK(contains(error_of<ConfigError>([&] { run->load([] {}); }), "keys of layer 0"));
  }
}

// Of every step what was decided, and not when.
std::vector<Json> decisions_of(const std::string& folder) {
  std::vector<Json> decisions;
  std::istringstream lines(read_text_file(folder + "/steps.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json step = Json::parse(line);
    for (const char* time : {"planned_ns", "started_ns", "finished_ns", "decode_only_ns"}) {
      step.erase(time);
    }
    decisions.push_back(step);
  }
  return decisions;
}

// A shipped scenario with a small model and as many tokens as that has positions for, all requests
// at the start, so that no decision depends on how long anything takes.
std::string shrunk(const std::string& family, const std::string& workload,
                   const std::string& model) {
  std::string arguments = "run scenarios/" + family + "/" + workload +
                          ".yaml --quiet --set model=" + kModels + model +
                          " --set engine.max_model_len=640 --set engine.max_num_seqs=4"
                          " --set workload.num_requests=5 --set workload.arrivals.process=burst"
                          " --set workload.prompt_tokens.min=20";
  arguments += workload == "prefix_caching"
                   ? " --set workload.prefix.prefix_tokens=200 --set workload.prompt_tokens.max=90"
                   : " --set workload.prompt_tokens.max=600";
  arguments += workload == "baseline" ? " --set workload.output_tokens.value=6"
                                      : " --set workload.output_tokens.min=3"
                                        " --set workload.output_tokens.max=12";
  return arguments;
}

void check_shipped(const std::string& family, const std::string& workload,
                   const std::string& model) {
  INFO(family << " " << workload);
  const Place place;
  const std::string arguments = shrunk(family, workload, model);
  const std::string measured = place.folder.path() + "/cuda";
  const std::string simulated = place.folder.path() + "/sim";
  const CommandResult cuda =
      run_metronome(arguments + " --backend=cuda --set cuda.kv_cache_gib=0.05 --out " + measured);
  REQUIRE(cuda.err == "");
  REQUIRE(cuda.exit_code == 0);
  std::vector<std::string> variants = {"unchunked", "chunked-512"};
  if (workload == "prefix_caching") variants.push_back("cached-512");
  std::string blocks;
  for (const std::string& variant : variants) {
    const Json result = Json::parse(read_text_file(measured + "/" + variant + "/result.json"));
    CHECK(result.at("backend") == "cuda");
    CHECK(result.at("completed") == 5);
    CHECK(result.at("failed") == 0);
    CHECK_FALSE(result.at("output_digest").is_null());
    blocks += " --set variants." + variant +
              ".kv_cache.num_blocks=" + std::to_string(result.at("num_kv_blocks").get<int>());
  }
  const CommandResult sim = run_metronome(arguments + blocks + " --out " + simulated);
  REQUIRE(sim.err == "");
  REQUIRE(sim.exit_code == 0);
  for (const std::string& variant : variants) {
    INFO(variant);
    const std::vector<Json> a = decisions_of(measured + "/" + variant);
    CHECK(a.size() > 5);
    CHECK(a == decisions_of(simulated + "/" + variant));
  }
}

TEST_CASE("drafts end to end: fewer steps, and no other token", "[gpu_backend][cli]") {
  const Place place;
  place.scenario(
      "engine: {max_num_seqs: 4, max_model_len: 128}\n"
      "scheduler: {policy: vllm}\n"
      "cuda: {invariance: full, kv_cache_gib: 0.05}\n"
      "sampling: {ignore_eos: true}\n"
      "variants:\n"
      "  - {name: plain}\n"
      "  - {name: drafts, speculative: {method: ngram, num_speculative_tokens: 3, "
      "prompt_lookup_min: 1, prompt_lookup_max: 3}}",
      kModels + "gemma3-64-window24");  // whose answers repeat themselves
  const std::string out = place.folder.path() + "/out";
  const CommandResult run =
      run_metronome("run '" + place.folder.path() + "/case.yaml' --quiet --backend=cuda --out " +
                    out + " --set workload.output_tokens.value=80");
  REQUIRE(run.err == "");
  REQUIRE(run.exit_code == 0);
  const auto result_of = [&](const std::string& variant) {
    return Json::parse(read_text_file(out + "/" + variant + "/result.json"));
  };
  const Json plain = result_of("plain");
  const Json drafts = result_of("drafts");
  CHECK(drafts.at("completed") == 3);
  CHECK(drafts.at("output_digest") == plain.at("output_digest"));
  CHECK(drafts.at("spec_decode_accepted_tokens").get<int>() > 0);
  CHECK(2 * drafts.at("num_steps").get<int>() < plain.at("num_steps").get<int>());
}

TEST_CASE("a shipped workload end to end, with the simulation's decisions", "[gpu_backend][cli]") {
  check_shipped("llama-3.2-3b", "chunked_prefill", "llama-64-llama3");
}

TEST_CASE("all shipped workloads end to end, with the simulation's decisions",
          "[gpu_backend][cli][slow]") {
  struct Pair {
    const char* family;
    const char* model;
  };
  for (const Pair& pair : {Pair{"llama-3.2-3b", "llama-64-llama3"},
                           {"qwen3-4b", "qwen3-128"},
                           {"gemma-3-1b", "gemma3-64-window24"}}) {
    for (const char* workload : {"baseline", "continuous_batching", "chunked_prefill",
                                 "paged_attention", "prefix_caching"}) {
      check_shipped(pair.family, workload, pair.model);
    }
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
