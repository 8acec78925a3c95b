// Bad scenarios: each ends in one line that names file, line and key, what is wrong and what is
// allowed.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/scratch_folder.h"

namespace metronome {
namespace {

using testing::ScratchFolder;

// Complete but for what a case puts before it.
constexpr const char* kRest =
    "model: llama-3.2-3b\n"
    "hardware: h200\n"
    "workload:\n"
    "  num_requests: 4\n"
    "  arrivals: {process: poisson, rate: 2}\n"
    "  prompt_tokens: {distribution: fixed, value: 100}\n"
    "  output_tokens: {distribution: fixed, value: 10}\n";

constexpr const char* kPolicies =
    "static, continuous, chunked, token_budget, single_prefill, slo, vllm, sglang, tensorrt_llm, "
    "sarathi, "
    "fastgen, llama_cpp, nano_vllm, vllm_prefill_first, orca, simple_chunking";

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

struct Case {
  const char* text;  // kRest follows
  const char* expected;
};

void check_all(std::span<const Case> cases) {
  for (const Case& c : cases) {
    INFO("scenario: " << c.text);
    CHECK(error_of(std::string(c.text) + kRest) == c.expected);
  }
}

TEST_CASE("unknown scenario keys at every depth", "[core][scenario]") {
  const Case cases[] = {
      {"sceduler: {policy: chunked}\n",
       "bad.yaml:1: sceduler: unknown key (did you mean 'scheduler'?); allowed: description, "
       "seed, model, weights, hardware, engine, kv_cache, scheduler, cost_model, sampling, cpu, "
       "cuda, workload, slo, results, backends, variants, sweep"},
      {"name: x\n",
       "bad.yaml:1: name: unknown key; allowed: description, seed, model, weights, hardware, "
       "engine, "
       "kv_cache, scheduler, cost_model, sampling, cpu, cuda, workload, slo, results, backends, "
       "variants, sweep"},
      {"engine:\n  max_num_seq: 4\n",
       "bad.yaml:2: engine.max_num_seq: unknown key (did you mean 'max_num_seqs'?); allowed: "
       "max_num_seqs, max_model_len, step_shape, async_depth, max_waiting_requests"},
      {"kv_cache: {page_size: 4}\n",
       "bad.yaml:1: kv_cache.page_size: unknown key; allowed: backend, block_size, num_blocks, "
       "allocation, watermark, enable_prefix_caching, sliding_window"},
      {"scheduler: {chunk: 4}\n",
       "bad.yaml:1: scheduler.chunk: unknown key; allowed: policy, order, "
       "max_num_batched_tokens, prefill_chunk_size, max_num_partial_prefills, min_chunk_size"},
      {"scheduler: {policy: sglang, max_running_requests: 4}\n",
       "bad.yaml:1: scheduler.max_running_requests: unknown key (here it is engine.max_num_seqs); "
       "allowed: policy, schedule_policy, chunked_prefill_size, max_prefill_tokens, "
       "enable_mixed_chunk, schedule_conservativeness, init_new_token_ratio, "
       "min_new_token_ratio_factor, new_token_ratio_decay_steps, retract_decode_steps, "
       "clip_max_new_tokens, max_consecutive_prefill_batches"},
      {"variants: [{name: a, scheduler: {policy: static, page_size: 4}}]\n",
       "bad.yaml:1: variants.0.scheduler.page_size: unknown key (here it is kv_cache.block_size); "
       "allowed: policy, batch_wait_ms"},
      {"scheduler: {policy: vllm, long_prefill_token_treshold: 4}\n",
       "bad.yaml:1: scheduler.long_prefill_token_treshold: unknown key (did you mean "
       "'long_prefill_token_threshold'?); allowed: policy, max_num_batched_tokens, "
       "scheduling_policy, enable_chunked_prefill, long_prefill_token_threshold, "
       "scheduler_reserve_full_isl, evict_unhashed_first"},
      {"cost_model: {files: x.json}\n",
       "bad.yaml:1: cost_model.files: unknown key (did you mean 'file'?); allowed: file, "
       "batching, gather_kv, tensor_parallel_size, host_gap_us, cold_start_ms, noise, noise_seeds, "
       "gpu_memory_utilization, max_graph_tokens"},
      {"slo: {tftt_ms: 4}\n",
       "bad.yaml:1: slo.tftt_ms: unknown key (did you mean 'ttft_ms'?); allowed: preset, "
       "ttft_ms, tpot_ms, itl_ms, e2el_ms"},
      {"results: {step: true}\n",
       "bad.yaml:1: results.step: unknown key (did you mean 'steps'?); allowed: steps, requests, "
       "trace, outputs, report"},
      {"variants:\n  - name: a\n    sheduler: {policy: static}\n",
       "bad.yaml:3: variants.0.sheduler: unknown key (did you mean 'scheduler'?); allowed: name, "
       "seed, model, weights, hardware, engine, kv_cache, scheduler, cost_model, sampling, cpu, "
       "cuda, workload, slo, results"},
      {"variants:\n  - name: a\n  - name: b\n    engine:\n      async: 2\n",
       "bad.yaml:5: variants.1.engine.async: unknown key (did you mean 'async_depth'?); allowed: "
       "max_num_seqs, max_model_len, step_shape, async_depth, max_waiting_requests"},
      {"variants: [{name: a, variants: []}]\n",
       "bad.yaml:1: variants.0.variants: unknown key; allowed: name, seed, model, weights, "
       "hardware, engine, kv_cache, scheduler, cost_model, sampling, cpu, cuda, workload, slo, "
       "results"},
  };
  check_all(cases);
}

TEST_CASE("wrong types of scenario keys", "[core][scenario]") {
  const Case cases[] = {
      {"seed: abc\n", "bad.yaml:1: seed: must be an integer, got 'abc'; allowed: at least 0"},
      {"seed: 1.5\n", "bad.yaml:1: seed: must be an integer, got '1.5'; allowed: at least 0"},
      {"description: [a]\n",
       "bad.yaml:1: description: must be text, got a list; allowed: one word or a quoted text"},
      {"engine: fast\n", "bad.yaml:1: engine: must be a mapping, got 'fast'; allowed: KEY: VALUE"},
      {"slo:\n", "bad.yaml:1: slo: must be a mapping, got nothing; allowed: KEY: VALUE"},
      {"engine: {max_num_seqs: '8'}\n",
       "bad.yaml:1: engine.max_num_seqs: must be an integer, got the quoted text \"8\"; allowed: "
       "1 to 1048576"},
      {"kv_cache: {watermark: low}\n",
       "bad.yaml:1: kv_cache.watermark: must be a number, got 'low'; allowed: 0 to 0.99, or null"},
      {"kv_cache: {enable_prefix_caching: on}\n",
       "bad.yaml:1: kv_cache.enable_prefix_caching: must be true, false or auto, got 'on'; "
       "allowed: true, false, auto"},
      {"kv_cache: {num_blocks: all}\n",
       "bad.yaml:1: kv_cache.num_blocks: must be an integer, got 'all'; allowed: 1 to 67108864, "
       "or auto"},
      {"scheduler: {policy: [chunked]}\n",
       "bad.yaml:1: scheduler.policy: must be a name, got a list; allowed: static, continuous, "
       "chunked, token_budget, single_prefill, slo, "
       "vllm, sglang, tensorrt_llm, sarathi, fastgen, llama_cpp, nano_vllm, vllm_prefill_first, "
       "orca, simple_chunking"},
      {"scheduler: {policy: chunkd}\n",
       "bad.yaml:1: scheduler.policy: unknown value 'chunkd' (did you mean 'chunked'?); allowed: "
       "static, continuous, chunked, token_budget, single_prefill, slo, "
       "vllm, sglang, tensorrt_llm, sarathi, fastgen, llama_cpp, nano_vllm, vllm_prefill_first, "
       "orca, simple_chunking"},
      {"cost_model: {batching: packed}\n",
       "bad.yaml:1: cost_model.batching: unknown value 'packed' (did you mean 'padded'?); "
       "allowed: ragged, padded"},
      {"slo: {itl_ms: fast}\n",
       "bad.yaml:1: slo.itl_ms: must be a number, got 'fast'; allowed: 0.001 to 3600000, or null"},
      {"slo: {preset: mlperf}\n",
       "bad.yaml:1: slo.preset: unknown value 'mlperf'; allowed: none, "
       "llama3.1-8b-conversational, llama3.1-8b-interactive, llama2-70b-server, "
       "llama2-70b-interactive, llama3.1-405b-server, llama3.1-405b-interactive, "
       "deepseek-r1-server, deepseek-r1-interactive, gpt-oss-120b-server, "
       "gpt-oss-120b-interactive"},
      {"results: {steps: 1}\n",
       "bad.yaml:1: results.steps: must be true or false, got '1'; allowed: true, false"},
  };
  check_all(cases);
}

TEST_CASE("scenario values out of range", "[core][scenario]") {
  const Case cases[] = {
      {"seed: -1\n", "bad.yaml:1: seed: -1 is out of range; allowed: 0 to 9223372036854775807"},
      {"engine: {max_num_seqs: 0}\n",
       "bad.yaml:1: engine.max_num_seqs: 0 is out of range; allowed: 1 to 1048576"},
      {"engine: {async_depth: 3}\n",
       "bad.yaml:1: engine.async_depth: 3 is out of range; allowed: 1 to 2"},
      {"engine:\n  max_model_len: 16777217\n",
       "bad.yaml:2: engine.max_model_len: 16777217 is out of range; allowed: 1 to 16777216, or "
       "auto"},
      {"kv_cache: {watermark: 1}\n",
       "bad.yaml:1: kv_cache.watermark: 1 is out of range; allowed: 0 to 0.99, or null"},
      {"scheduler: {prefill_chunk_size: 0}\n",
       "bad.yaml:1: scheduler.prefill_chunk_size: 0 is out of range; allowed: 1 to 16777216, or "
       "auto"},
      {"cost_model: {gpu_memory_utilization: 1.01}\n",
       "bad.yaml:1: cost_model.gpu_memory_utilization: 1.01 is out of range; allowed: 0.01 to 1"},
      {"slo: {ttft_ms: 0}\n",
       "bad.yaml:1: slo.ttft_ms: 0 is out of range; allowed: 0.001 to 3600000, or null"},
      {"slo: {ttft_ms: .inf}\n",
       "bad.yaml:1: slo.ttft_ms: .inf is out of range; allowed: 0.001 to 3600000, or null"},
      {"cost_model: {host_gap_us: nan}\n",
       "bad.yaml:1: cost_model.host_gap_us: nan is out of range; allowed: 0 to 1000000, or null"},
  };
  check_all(cases);
}

TEST_CASE("impossible combinations", "[core][scenario]") {
  const Case cases[] = {
      {"scheduler: {policy: static, prefill_chunk_size: 512}\n",
       "bad.yaml:1: scheduler.prefill_chunk_size: static batching cannot prefill in chunks, it "
       "forms a batch once and prefills whole prompts; allowed: policy chunked, token_budget"},
      {"scheduler:\n  policy: static\n  max_prefill_chunks_per_step: 2\n",
       "bad.yaml:3: scheduler.max_prefill_chunks_per_step: static batching cannot prefill in "
       "chunks, it forms a batch once and prefills whole prompts; allowed: policy chunked"},
      {"scheduler: {policy: continuous, prefill_chunk_size: 512}\n",
       "bad.yaml:1: scheduler.prefill_chunk_size: policy 'continuous' has no use for this key (it "
       "belongs to chunked, token_budget); allowed: policy, order"},
      {"scheduler: {batch_wait_ms: 5}\n",
       "bad.yaml:1: scheduler.batch_wait_ms: policy 'token_budget' has no use for this key (it "
       "belongs to static); allowed: policy, order, max_num_batched_tokens, prefill_chunk_size, "
       "max_num_partial_prefills, min_chunk_size"},
      {"scheduler: {policy: static, order: priority}\n",
       "bad.yaml:1: scheduler.order: policy 'static' has no use for this key (it belongs to "
       "continuous, chunked, token_budget, single_prefill); allowed: policy, batch_wait_ms"},
      {"scheduler: {max_num_batched_tokens: 64}\nengine: {max_num_seqs: 65}\n",
       "bad.yaml:1: scheduler.max_num_batched_tokens: 64 is less than engine.max_num_seqs 65, but "
       "every running request needs a token of its own in each step; allowed: at least 65"},
      {"engine:\n  max_num_seqs: 4096\n",
       "bad.yaml:2: engine.max_num_seqs: 4096 is more than scheduler.max_num_batched_tokens 2048, "
       "but every running request needs a token of its own in each step; allowed: at most 2048"},
      {"scheduler: {policy: single_prefill, max_num_batched_tokens: 8}\n",
       "bad.yaml:1: scheduler.max_num_batched_tokens: 8 is less than engine.max_num_seqs 256, but "
       "every running request needs a token of its own in each step; allowed: at least 256"},
      {"scheduler: {prefill_chunk_size: 16, min_chunk_size: 17}\n",
       "bad.yaml:1: scheduler.min_chunk_size: 17 is more than scheduler.prefill_chunk_size 16; "
       "allowed: 1 to 16"},
      {"scheduler: {min_chunk_size: 4000}\n",
       "bad.yaml:1: scheduler.min_chunk_size: 4000 is more than scheduler.max_num_batched_tokens "
       "2048; allowed: 1 to 2048"},
      {"scheduler: {policy: single_prefill}\nengine: {step_shape: mixed}\n",
       "bad.yaml:2: engine.step_shape: policy 'single_prefill' prefills and decodes in two "
       "passes; allowed: auto, separate"},
      {"kv_cache:\n  enable_prefix_caching: true\n",
       "bad.yaml:2: kv_cache.enable_prefix_caching: policy 'token_budget' does not reuse cached "
       "prefixes; allowed: false"},
  };
  check_all(cases);
}

TEST_CASE("settings that an engine's policy cannot have", "[core][scenario]") {
  const Case cases[] = {
      {"scheduler: {policy: nano_vllm}\nkv_cache: {enable_prefix_caching: false}\n",
       "bad.yaml:2: kv_cache.enable_prefix_caching: policy 'nano_vllm' always reuses cached "
       "prefixes; allowed: true"},
      {"kv_cache: {sliding_window: 512}\n",
       "bad.yaml:1: kv_cache.sliding_window: policy 'token_budget' keeps one group of layers; "
       "allowed: 0"},
      {"scheduler: {policy: sarathi}\nkv_cache: {backend: slotted}\n",
       "bad.yaml:2: kv_cache.backend: policy 'sarathi' needs a free block beside those in use; "
       "allowed: paged"},
      {"scheduler: {policy: sglang}\nkv_cache: {watermark: 0.1}\n",
       "bad.yaml:2: kv_cache.watermark: policy 'sglang' keeps no blocks free, as its engine; "
       "allowed: 0, or null"},
      {"scheduler: {policy: vllm}\nkv_cache: {allocation: eager}\n",
       "bad.yaml:2: kv_cache.allocation: policy 'vllm' takes blocks when its engine does; allowed: "
       "incremental"},
      {"scheduler: {policy: orca, chunk_size: 8}\n",
       "bad.yaml:1: scheduler.chunk_size: policy 'orca' has no use for this key (it belongs to "
       "sarathi, simple_chunking); allowed: policy"},
      {"scheduler: {policy: slo}\nslo: {ttft_ms: 500}\n",
       "bad.yaml:1: scheduler.itl_target_ms: policy 'slo' chooses chunks by a time between tokens; "
       "allowed: a number, or slo.itl_ms, slo.tpot_ms or scheduler.tpot_target_ms in its place"},
      {"scheduler: {policy: slo, itl_target_ms: 20, late_share: 0}\n",
       "bad.yaml:1: scheduler.late_share: 0 is out of range; allowed: 0.001 to 1"},
      {"scheduler: {policy: chunked, tile_tokens: 64}\n",
       "bad.yaml:1: scheduler.tile_tokens: policy 'chunked' has no use for this key (it belongs to "
       "slo); allowed: policy, order, prefill_chunk_size, max_prefill_chunks_per_step"},
      {"scheduler: {policy: tensorrt_llm, chunk_unit_size: 24}\n",
       "bad.yaml:1: scheduler.chunk_unit_size: 24 is not a multiple of kv_cache.block_size 16; "
       "allowed: 0 (a block), or a multiple of it"},
      {"scheduler: {policy: sarathi, chunk_size: 64}\n",
       "bad.yaml:1: scheduler.chunk_size: 64 is less than engine.max_num_seqs 256, but every "
       "decode "
       "takes a token of the chunk; allowed: at least 256"},
      {"scheduler: {policy: sarathi, enable_dynamic_chunking_schedule: true, low_chunk_size: "
       "300}\n",
       "bad.yaml:1: scheduler.low_chunk_size: 300 is not a multiple of 32; allowed: 32, 64, 96, "
       "..."},
      {"scheduler: {policy: sarathi, enable_dynamic_chunking_schedule: true, low_chunk_size: 512, "
       "high_chunk_size: 256}\n",
       "bad.yaml:1: scheduler.high_chunk_size: 256 is less than scheduler.low_chunk_size 512; "
       "allowed: at least as much"},
      {"scheduler: {policy: sarathi, enable_dynamic_chunking_schedule: true, low_chunk_size: "
       "128}\n",
       "bad.yaml:1: scheduler.low_chunk_size: 128 is less than engine.max_num_seqs 256, but every "
       "decode takes a token of the chunk; allowed: at least 256"},
  };
  check_all(cases);
}

TEST_CASE("slots have no use for the settings of blocks", "[core][scenario]") {
  for (const char* key : {"block_size: 16", "num_blocks: 8", "num_blocks: auto",
                          "allocation: eager", "watermark: 0.1"}) {
    const std::string setting(key);
    const std::string name = setting.substr(0, setting.find(':'));
    INFO(setting);
    CHECK(error_of("kv_cache: {backend: slotted,\n  " + setting + "}\n" + kRest) ==
          "bad.yaml:2: kv_cache." + name +
              ": the slotted backend has max_num_seqs slots of max_model_len tokens and no use "
              "for this key; allowed: backend paged, or the key left out");
  }
  CHECK(
      error_of(std::string("kv_cache: {backend: slotted, enable_prefix_caching: false}\n") + kRest)
          .empty());
}

TEST_CASE("what a backend has of its own", "[core][scenario]") {
  const Case cases[] = {
      {"backends: [cpu]\n",
       "bad.yaml:1: backends: must be a mapping, got a list; allowed: keys sim, cpu, cuda"},
      {"backends:\n  gpu: {model: a}\n",
       "bad.yaml:2: backends.gpu: no such backend; allowed: sim, cpu, cuda"},
      {"backends:\n  cuda: {seeed: 1}\n",
       "bad.yaml:2: backends.cuda.seeed: unknown key (did you mean 'seed'?); allowed: seed, model, "
       "weights, hardware, engine, kv_cache, scheduler, cost_model, sampling, cpu, cuda, workload, "
       "slo, "
       "results"},
      {"backends:\n  cuda: {engine: {async_depth: 3}}\n",
       "bad.yaml:2: backends.cuda.engine.async_depth: 3 is out of range; allowed: 1 to 2"},
  };
  check_all(cases);
}

TEST_CASE("what one scenario must have", "[core][scenario]") {
  const std::string model = "model: llama-3.2-3b\n";
  const std::string hardware = "hardware: h200\n";
  const std::string workload = std::string(kRest).substr(std::string(kRest).find("workload:"));
  const std::string models =
      "; allowed: a name of the catalogue, or a path to a config.json or model folder";
  CHECK(error_of(hardware + workload) == "bad.yaml:1: model: required key is missing" + models);
  CHECK(error_of("# first\n\n" + hardware + "model:\n" + workload) ==
        "bad.yaml:4: model: must be text, got nothing; allowed: one word or a quoted text");
  CHECK(error_of(hardware + "model: ''\n" + workload) ==
        "bad.yaml:2: model: must not be empty" + models);
  CHECK(error_of(model + workload).empty());  // `hardware` is for the simulator to miss
  CHECK(error_of(model + hardware) ==
        "bad.yaml:1: workload: required key is missing; allowed: arrivals and lengths, or a "
        "trace");
  CHECK(error_of(model + hardware + "workload: 5\n") ==
        "bad.yaml:3: workload: must be a mapping, got '5'; allowed: KEY: VALUE");
}

TEST_CASE("bad variants", "[core][scenario]") {
  const Case cases[] = {
      {"variants: []\n",
       "bad.yaml:1: variants: must be a list of variants, got an empty list; allowed: at least "
       "one mapping with a name, or no such key"},
      {"variants:\n",
       "bad.yaml:1: variants: must be a list of variants, got nothing; allowed: at least one "
       "mapping with a name, or no such key"},
      {"variants: {a: 1}\n",
       "bad.yaml:1: variants: must be a list of variants, got a mapping; allowed: at least one "
       "mapping with a name, or no such key"},
      {"variants:\n  - name: a\n  - b\n",
       "bad.yaml:3: variants.1: must be a mapping, got 'b'; allowed: KEY: VALUE"},
      {"variants:\n  - name: a\n  - seed: 5\n",
       "bad.yaml:3: variants.1.name: required key is missing; allowed: letters, digits, '.', '_' "
       "and '-'"},
      {"variants:\n  - {seed: 5,\n     name: }\n",
       "bad.yaml:3: variants.0.name: must be text, got nothing; allowed: one word or a quoted "
       "text"},
      {"variants: [{name: a b}]\n",
       "bad.yaml:1: variants.0.name: 'a b' is no variant name; allowed: letters, digits, '.', "
       "'_' and '-'"},
      {"variants: [{name: a/b}]\n",
       "bad.yaml:1: variants.0.name: 'a/b' is no variant name; allowed: letters, digits, '.', "
       "'_' and '-'"},
      {"variants: [{name: summary.json}]\n",
       "bad.yaml:1: variants.0.name: 'summary.json' may be the name of a result file; allowed: "
       "one that does not end in .json"},
      {"variants: [{name: a}, {name: result.json}]\n",
       "bad.yaml:1: variants.1.name: 'result.json' may be the name of a result file; allowed: "
       "one that does not end in .json"},
      {"variants: [{name: 65-characters-are-one-too-many.23456789.123456789.123456789.12345}]\n",
       "bad.yaml:1: variants.0.name: '65-characters-are-one-too-many.23456789.123456789.1234567"
       "89....' is too long; allowed: at most 64 characters"},
      {"variants: [{name: ..}]\n",
       "bad.yaml:1: variants.0.name: '..' is no variant name; allowed: letters, digits, '.', '_' "
       "and '-'"},
      {"variants:\n  - name: a\n  - name: b\n  - name: a\n",
       "bad.yaml:4: variants.2.name: 'a' is already the name of variants.0; allowed: a name of "
       "its own"},
      {"scheduler: {policy: chunked}\nvariants:\n"
       "  - {name: a, scheduler: {max_num_batched_tokens: 64}}\n",
       "bad.yaml:3: scheduler.max_num_batched_tokens: policy 'chunked' has no use for this key (it "
       "belongs to token_budget, single_prefill, slo, vllm, nano_vllm, vllm_prefill_first); "
       "allowed: "
       "policy, order, prefill_chunk_size, max_prefill_chunks_per_step"},
      {"scheduler: {policy: chunked, batch_wait_ms: 5}\nvariants:\n"
       "  - {name: a, scheduler: {policy: static}}\n",
       "bad.yaml:1: scheduler.batch_wait_ms: policy 'chunked' has no use for this key (it belongs "
       "to static); allowed: policy, order, prefill_chunk_size, max_prefill_chunks_per_step"},
      {"variants:\n  - {name: a, kv_cache: {backend: slotted, block_size: 8}}\n",
       "bad.yaml:2: kv_cache.block_size: the slotted backend has max_num_seqs slots of "
       "max_model_len tokens and no use for this key; allowed: backend paged, or the key left "
       "out"},
  };
  check_all(cases);
}

TEST_CASE("a misspelt inherited key is not dropped with the others", "[core][scenario]") {
  const Case cases[] = {
      {"scheduler: {chunks: 5}\nvariants: [{name: a, scheduler: {policy: static}}]\n",
       "bad.yaml:1: scheduler.chunks: unknown key; allowed: policy, batch_wait_ms"},
  };
  check_all(cases);
}

TEST_CASE("files that are no scenario", "[core][scenario]") {
  const std::string keys = "; allowed: keys such as model, hardware, scheduler, workload";
  CHECK(error_of("") == "bad.yaml:1: the scenario is empty" + keys);
  CHECK(error_of("# nothing\n") == "bad.yaml:1: the scenario is empty" + keys);
  CHECK(error_of("- a\n- b\n") == "bad.yaml:1: a scenario is a mapping, not a list" + keys);
  CHECK(error_of("hello\n") == "bad.yaml:1: a scenario is a mapping, not 'hello'" + keys);
  CHECK(error_of("seed: 1\nseed: 2\n") ==
        "bad.yaml:2: seed: duplicate key, first given at line 1; allowed: each key once");
  CHECK(error_of("engine:\n  async_depth: 1\n  async_depth: 2\n") ==
        "bad.yaml:3: engine.async_depth: duplicate key, first given at line 2; allowed: each key "
        "once");
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
            "/none.yaml: cannot be read (No such file or directory); allowed: a readable YAML "
            "file");
}

TEST_CASE("bad assignments name the option", "[core][scenario]") {
  struct AssignmentCase {
    const char* assignment;
    const char* expected;
  };
  const AssignmentCase cases[] = {
      {"scheduler.chunk=5",
       "--set scheduler.chunk: unknown key; allowed: policy, order, max_num_batched_tokens, "
       "prefill_chunk_size, max_num_partial_prefills, min_chunk_size"},
      {"slo={ttft: 5}",
       "--set slo: slo.ttft: unknown key (did you mean 'ttft_ms'?); allowed: preset, ttft_ms, "
       "tpot_ms, itl_ms, e2el_ms"},
      {"seed=18446744073709551615",
       "--set seed: 18446744073709551615 is out of range; allowed: 0 to 9223372036854775807"},
      {"variants.b.engine={max_seqs: 2}",
       "--set variants.b.engine: variants.1.engine.max_seqs: unknown key; allowed: max_num_seqs, "
       "max_model_len, step_shape, async_depth, max_waiting_requests"},
      {"seed=x", "--set seed: must be an integer, got 'x'; allowed: at least 0"},
      {"engine.async_depth=3", "--set engine.async_depth: 3 is out of range; allowed: 1 to 2"},
      {"variants.none.seed=3",
       "--set variants.none.seed: no such variant; allowed: variants.NAME.KEY with a NAME of a, b"},
      {"variants.a=3",
       "--set variants.a: no such variant; allowed: variants.NAME.KEY with a NAME of a, b"},
      {"variants.2.seed=3",
       "--set variants.2.seed: '2' is no position in the list 'variants'; "
       "allowed: 0 to 1"},
      {"variants.b.engine.asynch_depth=2",
       "--set variants.b.engine.asynch_depth: unknown key (did you mean 'async_depth'?); allowed: "
       "max_num_seqs, max_model_len, step_shape, async_depth, max_waiting_requests"},
      {"variants.b.kv_cache.enable_prefix_caching=true",
       "--set variants.b.kv_cache.enable_prefix_caching: policy 'token_budget' does not reuse "
       "cached prefixes; allowed: false"},
      {"seed", "--set seed: malformed assignment; allowed: KEY=VALUE, as in slo.ttft_ms=500"},
      {"model.name=x",
       "--set model.name: 'model' is 'llama-3.2-3b', which has no keys; allowed: "
       "a key of a mapping or a position in a list"},
  };
  const std::string text = std::string(kRest) + "variants: [{name: a}, {name: b}]\n";
  for (const AssignmentCase& c : cases) {
    INFO("--set " << c.assignment);
    CHECK(error_of(text, {c.assignment}) == c.expected);
  }
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

TEST_CASE("the policies of these tests are those that exist", "[core][scenario]") {
  std::vector<std::string_view> names;
  for (const PolicyInfo& policy : all_policies()) names.push_back(policy.name);
  CHECK(join_names(names) == kPolicies);
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

// Whatever a file holds, it loads or ends in one line that begins with its path.
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
}  // namespace metronome
