// SPDX-License-Identifier: Apache-2.0
// Bad scenarios: each ends in one line that names file, line and key, what is wrong and what is
// allowed.
#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/expected.h"
#include "tests/scratch_folder.h"
#include "tests/small_scenario.h"

namespace metronome::TEST_FILE {
namespace {

using testing::Answers;
using testing::ScratchFolder;

// Complete but for what a case puts before it.
constexpr const char* kRest = testing::kSmallScenario;

// The message for a file of this text, its path shortened to its name.
std::string error_of(const std::string& text, const std::vector<std::string>& assignments = {}) {
  const ScratchFolder folder;
  const std::string path = folder.write("bad.yaml", text);
  try {
    load_scenario(path, assignments, std::nullopt);
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    return message.starts_with(folder.path() + "/") ? message.substr(folder.path().size() + 1)
                                                    : message;
  }
  return "";
}

// The error of each text, followed by kRest.
void check_all(const std::string& name, const std::vector<const char*>& texts) {
  Answers answers(name);
  for (const char* text : texts) answers.add(text, error_of(std::string(text) + kRest));
}

TEST_CASE("unknown scenario keys at every depth", "[core][scenario]") {
  check_all("scenario_errors/unknown_keys.txt",
            {"sceduler: {policy: chunked}\n",
             "name: x\n",
             "engine:\n  max_num_seq: 4\n",
             "kv_cache: {page_size: 4}\n",
             "scheduler: {chunk: 4}\n",
             "scheduler: {policy: sglang, max_running_requests: 4}\n",
             "scheduler: {policy: vllm, kv_cache_dtype: fp8}\n",
             "scheduler: {policy: vllm, quantization: fp8}\n",
             "variants: [{name: a, scheduler: {policy: static, page_size: 4}}]\n",
             "scheduler: {policy: vllm, long_prefill_token_treshold: 4}\n",
             "cost_model: {files: x.json}\n",
             "slo: {tftt_ms: 4}\n",
             "results: {step: true}\n",
             "variants:\n  - name: a\n    sheduler: {policy: static}\n",
             "variants:\n  - name: a\n  - name: b\n    engine:\n      async: 2\n",
             "variants: [{name: a, variants: []}]\n",
             "tensor_parallel_size: 2\n",
             "kv_cache: {gpu_memory_utilization: 0.9}\n",
             "engine: {hardware: h200}\n",
             "cost_model: {slo: {ttft_ms: 1}}\n",
             "request_rate: 4\n",
             "variants: [{name: a, ttft_ms: 4}]\n",
             "slo: {rate: 3}\n"});
}

TEST_CASE("settings of drafts that contradict others", "[core][scenario]") {
  const std::string vllm = "scheduler: {policy: vllm}\n";
  Answers answers("scenario_errors/drafts.txt");
  for (const char* drafts :
       {"{method: eagle3}",
        "{method: eagle, model: llama-3.2-1b}",
        "{method: draft_model}",
        "{method: eagle, prompt_lookup_min: 2}",
        "{num_speculative_tokens: 2}",
        "{method: ngram, prompt_lookup_min: 6}",
        "{method: mtp, num_speculative_tokens: 255}",
        "{method: eagle, num_speculative_tokens_per_batch_size: [[2, 8, 1]]}",
        "{method: eagle, num_speculative_tokens_per_batch_size: [[1, 8, 3], [8, 9, 1]]}",
        "{method: eagle, num_speculative_tokens_per_batch_size: [[1, 0, 3]]}",
        "{method: eagle, num_speculative_tokens_per_batch_size: [[1, 8]]}",
        "{method: eagle, num_speculative_tokens_per_batch_size: [1, 8, 3]}",
        "{method: eagle, acceptance: {proposal_rate: 0.5}}",
        "{method: eagle, acceptance: {rate: 1}}",
        "{method: eagle, acceptance: {rate: []}}",
        "{method: eagle, acceptance: {rate: [1.5]}}",
        "{method: eagle, acceptance: {rate: [0.5], weights: [1, 2]}}",
        "{method: eagle, acceptance: {rate: [0.5], weights: [0]}}",
        "{method: eagle, acceptance: {positions: [0.5]}}",
        "{method: eagle, acceptance: {kind: positions, positions: [0.5, 0.4]}}",
        "{method: eagle, acceptance: {kind: positions, positions: [0.5, 0.6, 0.1]}}",
        "{method: eagle, acceptance: {kind: length}}",
        "{method: eagle, acceptance: {kind: length, mean_length: [4.5]}}",
        "{method: eagle, acceptance: {kind: length, mean_length: [2.5], mean_length_tokens: 1}}",
        "{method: eagle, acceptance: {kind: log}}"}) {
    const std::string text = "speculative: " + std::string(drafts) + "\n";
    answers.add(text, error_of(text + vllm + kRest));
  }
  const std::string eagle = "speculative: {method: eagle}\n";
  for (const char* other :
       {"scheduler: {policy: token_budget}\n", "scheduler: {policy: vllm, version: 0.30}\n",
        "scheduler: {policy: vllm}\nkv_cache: {backend: slotted}\n"}) {
    answers.add(eagle + other, error_of(eagle + other + kRest));
  }
  const std::string lookup = "speculative: {method: ngram}\nengine: {async_depth: 2}\n";
  answers.add(lookup, error_of(lookup + vllm + kRest));
}

// The workload has readers of its own.
TEST_CASE("a key of another section says where it belongs in the workload, too",
          "[core][scenario]") {
  const std::string text =
      "model: llama-3.2-3b\nhardware: h200\nworkload: {num_requests: 4, arrivals: {max_num_seqs: "
      "2}}\n";
  CHECK(error_of(text).starts_with(
      "bad.yaml:3: workload.arrivals.max_num_seqs: unknown key (here it is engine.max_num_seqs); "
      "allowed: process, rate, "));
}

TEST_CASE("wrong types of scenario keys", "[core][scenario]") {
  check_all("scenario_errors/wrong_types.txt",
            {"seed: abc\n", "seed: 1.5\n", "description: [a]\n", "engine: fast\n", "slo:\n",
             "engine: {max_num_seqs: '8'}\n", "kv_cache: {watermark: low}\n",
             "kv_cache: {enable_prefix_caching: on}\n", "kv_cache: {num_blocks: all}\n",
             "scheduler: {policy: [chunked]}\n", "scheduler: {policy: chunkd}\n",
             "cost_model: {batching: packed}\n", "slo: {itl_ms: fast}\n", "slo: {preset: mlperf}\n",
             "results: {steps: 1}\n"});
}

TEST_CASE("scenario values out of range", "[core][scenario]") {
  check_all("scenario_errors/out_of_range.txt",
            {"seed: -1\n", "engine: {max_num_seqs: 0}\n", "engine: {async_depth: 3}\n",
             "engine:\n  max_model_len: 16777217\n", "kv_cache: {watermark: 1}\n",
             "scheduler: {prefill_chunk_size: 0}\n", "cost_model: {gpu_memory_utilization: 1.01}\n",
             "slo: {ttft_ms: 0}\n", "slo: {ttft_ms: .inf}\n", "cost_model: {host_gap_us: nan}\n"});
}

TEST_CASE("impossible combinations", "[core][scenario]") {
  check_all("scenario_errors/impossible_combinations.txt",
            {"scheduler: {policy: static, prefill_chunk_size: 512}\n",
             "scheduler:\n  policy: static\n  max_prefill_chunks_per_step: 2\n",
             "scheduler: {policy: continuous, prefill_chunk_size: 512}\n",
             "scheduler: {batch_wait_ms: 5}\n", "scheduler: {policy: static, order: priority}\n",
             "scheduler: {max_num_batched_tokens: 64}\nengine: {max_num_seqs: 65}\n",
             "engine:\n  max_num_seqs: 4096\n",
             "scheduler: {policy: single_prefill, max_num_batched_tokens: 8}\n",
             "scheduler: {prefill_chunk_size: 16, min_chunk_size: 17}\n",
             "scheduler: {min_chunk_size: 4000}\n",
             "scheduler: {policy: single_prefill}\nengine: {step_shape: mixed}\n",
             "scheduler: {policy: slo}\nkv_cache:\n  enable_prefix_caching: true\n"});
}

TEST_CASE("settings that an engine's policy cannot have", "[core][scenario]") {
  check_all(
      "scenario_errors/settings_of_policies.txt",
      {"scheduler: {policy: nano_vllm}\nkv_cache: {enable_prefix_caching: false}\n",
       "kv_cache: {sliding_window: 512}\n",
       "scheduler: {policy: sarathi}\nkv_cache: {backend: slotted}\n",
       "scheduler: {policy: sglang}\nkv_cache: {watermark: 0.1}\n",
       "scheduler: {policy: vllm}\nkv_cache: {allocation: eager}\n",
       "scheduler: {policy: vllm, version: 0.30, max_num_active_seqs: 4}\n",
       "scheduler: {policy: vllm, version: 0.30, long_prefill_token_threshold: 64, "
       "long_prefill_token_threshold_adaptive: true}\n",
       "scheduler: {policy: vllm, version: 0.32, prefill_schedule_interval: 2}\n",
       "scheduler: {policy: vllm, version: 0.22}\n"
       "kv_cache: {sliding_window: 512, prefix_cache_retention_interval: 0}\n",
       "scheduler: {policy: vllm, max_num_active_seqs: 9}\nengine: {max_num_seqs: 8}\n",
       "scheduler: {policy: orca, chunk_size: 8}\n",
       "scheduler: {policy: tensorrt_llm, enable_chunked_prefill: false}\n",
       "scheduler: {policy: vllm, enable_chunked_context: false}\n",
       "scheduler: {policy: sglang, enable_chunked_prefill: false}\n",
       "scheduler: {policy: token_budget, cont_batching: false}\n",
       "scheduler: {policy: fastgen, max_num_batched_tokens: 512}\n",
       "scheduler: {policy: slo}\nslo: {ttft_ms: 500}\n",
       "scheduler: {policy: slo, itl_target_ms: 20, late_share: 0}\n",
       "scheduler: {policy: chunked, tile_tokens: 64}\n",
       "scheduler: {policy: tensorrt_llm, chunk_unit_size: 24}\n",
       "scheduler: {policy: sglang, chunked_prefill_size: 40}\nkv_cache: {block_size: 16}\n",
       "scheduler: {policy: sglang}\nkv_cache: {block_size: 48}\n",
       "scheduler: {policy: sglang, schedule_policy: hrrn, enable_priority_scheduling: true}\n",
       "scheduler: {policy: sglang, schedule_policy: shortest-prefill-first}\n"
       "kv_cache: {enable_prefix_caching: false}\n",
       "scheduler: {policy: sarathi, chunk_size: 64}\n",
       "scheduler: {policy: sarathi, enable_dynamic_chunking_schedule: true, low_chunk_size: "
       "300}\n",
       "scheduler: {policy: sarathi, enable_dynamic_chunking_schedule: true, low_chunk_size: 512, "
       "high_chunk_size: 256}\n",
       "scheduler: {policy: sarathi, enable_dynamic_chunking_schedule: true, low_chunk_size: "
       "128}\n"});
}

TEST_CASE("slots have no use for the settings of blocks", "[core][scenario]") {
  check_all("scenario_errors/slots.txt",
            {"kv_cache: {backend: slotted,\n  block_size: 16}\n",
             "kv_cache: {backend: slotted,\n  num_blocks: 8}\n",
             "kv_cache: {backend: slotted,\n  num_blocks: auto}\n",
             "kv_cache: {backend: slotted,\n  allocation: eager}\n",
             "kv_cache: {backend: slotted,\n  watermark: 0.1}\n",
             "kv_cache: {backend: slotted, enable_prefix_caching: false}\n"});
}

TEST_CASE("what a backend has of its own", "[core][scenario]") {
  check_all("scenario_errors/backends.txt",
            {"backends: [cpu]\n", "backends:\n  gpu: {model: a}\n",
             "backends:\n  cuda: {seeed: 1}\n", "backends:\n  cuda: {engine: {async_depth: 3}}\n"});
}

TEST_CASE("what one scenario must have", "[core][scenario]") {
  const std::string model = "model: llama-3.2-3b\n";
  const std::string hardware = "hardware: h200\n";
  const std::string workload = std::string(kRest).substr(std::string(kRest).find("workload:"));
  Answers answers("scenario_errors/required_keys.txt");
  for (const std::string& text :
       {hardware + workload, "# first\n\n" + hardware + "model:\n" + workload,
        hardware + "model: ''\n" + workload, model + hardware,
        model + hardware + "workload: 5\n"}) {
    answers.add(text, error_of(text));
  }
  CHECK(error_of(model + workload).empty());  // `hardware` is for the simulator to miss
}

TEST_CASE("bad variants", "[core][scenario]") {
  check_all(
      "scenario_errors/variants.txt",
      {"variants: []\n", "variants:\n", "variants: {a: 1}\n", "variants:\n  - name: a\n  - b\n",
       "variants:\n  - name: a\n  - seed: 5\n", "variants:\n  - {seed: 5,\n     name: }\n",
       "variants: [{name: a b}]\n", "variants: [{name: a/b}]\n",
       "variants: [{name: summary.json}]\n", "variants: [{name: a}, {name: result.json}]\n",
       "variants: [{name: 65-characters-are-one-too-many.23456789.123456789.123456789.12345}]\n",
       "variants: [{name: ..}]\n", "variants:\n  - name: a\n  - name: b\n  - name: a\n",
       "scheduler: {policy: chunked}\nvariants:\n"
       "  - {name: a, scheduler: {max_num_batched_tokens: 64}}\n",
       "scheduler: {policy: chunked, batch_wait_ms: 5}\nvariants:\n"
       "  - {name: a, scheduler: {policy: static}}\n",
       "variants:\n  - {name: a, kv_cache: {backend: slotted, block_size: 8}}\n",
       // A misspelt key that is inherited is not dropped with the others.
       "scheduler: {chunks: 5}\nvariants: [{name: a, scheduler: {policy: static}}]\n"});
}

TEST_CASE("files that are no scenario", "[core][scenario]") {
  Answers answers("scenario_errors/no_scenario.txt");
  for (const char* text : {"", "# nothing\n", "- a\n- b\n", "hello\n", "seed: 1\nseed: 2\n",
                           "engine:\n  async_depth: 1\n  async_depth: 2\n"}) {
    answers.add(text, error_of(text));
  }
  CHECK(error_of("model: [a\nhardware: b\n").starts_with("bad.yaml:2: malformed YAML: "));
  const ScratchFolder folder;
  const auto load = [](const std::string& path) -> std::string {
    try {
      load_scenario(path, {}, std::nullopt);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(load(folder.path()) == folder.path() + ": is a folder; allowed: a readable YAML file");
  CHECK(load(folder.path() + "/none.yaml") ==
        folder.path() +
            "/none.yaml: does not exist; allowed: a readable YAML "
            "file");
}

TEST_CASE("bad assignments name the option", "[core][scenario]") {
  const std::string text = std::string(kRest) + "variants: [{name: a}, {name: b}]\n";
  Answers answers("scenario_errors/assignments.txt");
  for (const char* assignment :
       {"scheduler.chunk=5", "slo={ttft: 5}", "seed=18446744073709551615",
        "variants.b.engine={max_seqs: 2}", "seed=x", "engine.async_depth=3", "variants.none.seed=3",
        "variants.a=3", "variants.2.seed=3", "variants.b.engine.asynch_depth=2",
        "variants.b.kv_cache.sliding_window=5", "seed", "model.name=x"}) {
    answers.add(std::string("--set ") + assignment, error_of(text, {assignment}));
  }
  // A policy that is assigned drops what it does not use, but not what is assigned as well.
  CHECK(error_of(kRest, {"scheduler.policy=chunked", "scheduler.version={}"})
            .starts_with("--set scheduler.version: must be a name, got a mapping"));
  CHECK(error_of(kRest, {"variants.a.seed=3"}) ==
        "--set variants.a.seed: no such variant; allowed: a key of a scenario without variants");
}

TEST_CASE("the seed argument has a range", "[core][scenario]") {
  const ScratchFolder folder;
  const std::string path = folder.write("good.yaml", kRest);
  CHECK_THROWS_WITH(load_scenario(path, {}, 18446744073709551615u),
                    "--seed: 18446744073709551615 is out of range; allowed: 0 to "
                    "9223372036854775807");
}

// Overwrites, inserts or removes bytes, or cuts the end off.
void damage(std::string& text, Rng& rng) {
  constexpr std::string_view kBytes = "\n\t :,{}[]'\"#&*!|>%@`-?~0a.\\\x80\xff";
  if (text.empty()) return;
  const auto below = [&rng](std::size_t size) {
    return static_cast<std::size_t>(rng.uniform_int(0, static_cast<std::int64_t>(size) - 1));
  };
  const std::size_t at = below(text.size());
  const char byte = kBytes[below(kBytes.size())];
  switch (below(4)) {
    case 0: text[at] = byte; break;
    case 1: text.insert(at, 1, byte); break;
    case 2: text.erase(at, 1 + below(8)); break;
    default: text.resize(at);
  }
}

// Any file loads, or is refused in one line that begins with its path.
TEST_CASE("damaged scenarios load or are refused in one line", "[core][scenario]") {
  const std::string whole =
      std::string(
          "scheduler:\n  policy: chunked\n  prefill_chunk_size: 64\n"
          "kv_cache: {backend: paged, num_blocks: auto}\nslo: {ttft_ms: 5e2}\n"
          "variants:\n  - name: \"a\"\n  - {name: 'b', scheduler: {policy: static}}\n") +
      kRest;
  const ScratchFolder folder;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed, "damage");
    std::string text = whole;
    for (auto edit = rng.uniform_int(1, 4); edit > 0; --edit) damage(text, rng);
    const std::string path = folder.write("damaged.yaml", text);
    INFO("seed " << seed << "\n" << text);
    try {
      load_scenario(path, {}, std::nullopt);
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      CHECK(message.starts_with(path + ":"));
      CHECK(message.find('\n') == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
