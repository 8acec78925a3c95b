// SPDX-License-Identifier: Apache-2.0
// Scenario files: overrides, variants, defaults, and what a good one resolves to. The bad ones are
// in test_scenario_errors.cpp.

#include <filesystem>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_keys.h"
#include "fleet/router_registry.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using testing::ScratchFolder;

constexpr const char* kWorkload =
    "workload:\n"
    "  num_requests: 4\n"
    "  arrivals: {process: poisson, rate: 2}\n"
    "  prompt_tokens: {distribution: fixed, value: 100}\n"
    "  output_tokens: {distribution: fixed, value: 10}\n";

std::string minimal() { return std::string("model: llama-3.2-3b\nhardware: h200\n") + kWorkload; }

ScenarioFile load(const std::string& text, const std::vector<std::string>& assignments = {},
                  std::optional<std::uint64_t> seed = std::nullopt,
                  std::string_view backend = "sim") {
  const ScratchFolder folder;
  return load_scenario(folder.write("case.yaml", text), assignments, seed, backend);
}

Scenario load_one(const std::string& text, const std::vector<std::string>& assignments = {}) {
  const ScenarioFile file = load(text, assignments);
  REQUIRE(file.variants.size() == 1);
  return file.variants[0];
}

std::string error_of(const std::string& text, const std::vector<std::string>& assignments = {}) {
  try {
    load(text, assignments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a minimal scenario takes the defaults", "[core][scenario]") {
  const ScratchFolder folder;
  const std::string path = folder.write("small.yaml", "description: tiny\n" + minimal());
  const ScenarioFile file = load_scenario(path, {}, std::nullopt);
  CHECK(file.path == path);
  CHECK(file.name == "small");
  CHECK(file.description == "tiny");
  CHECK_FALSE(file.has_variants);
  REQUIRE(file.variants.size() == 1);
  const Scenario& scenario = file.variants[0];
  CHECK(scenario.name == "small");
  CHECK(scenario.seed == 0);
  CHECK(scenario.model == "llama-3.2-3b");
  CHECK(scenario.hardware == "h200");
  CHECK(scenario.workload.num_requests == 4);
  Json shown = Json::parse(scenario.to_json());
  shown.erase("workload");
  const Json expected = Json::parse(R"({
    "seed": 0, "model": "llama-3.2-3b", "weights": "auto", "quantization": "auto",
    "hardware": "h200", "price_per_gpu_hour": null,
    "engine": {"max_num_seqs": 256, "max_model_len": "auto", "step_shape": "auto",
               "async_depth": 1, "max_waiting_requests": 0},
    "kv_cache": {"backend": "paged", "block_size": 16, "num_blocks": "auto",
                 "allocation": "incremental", "watermark": 0.0, "enable_prefix_caching": false,
                 "sliding_window": 0, "dtype": "auto"},
    "scheduler": {"policy": "token_budget", "order": "fcfs", "max_num_batched_tokens": 2048,
                  "prefill_chunk_size": "auto", "max_num_partial_prefills": 0,
                  "min_chunk_size": 1},
    "speculative": {"method": "none"},
    "cost_model": {"file": "", "batching": "ragged", "gather_kv": false,
                   "tensor_parallel_size": 1, "link": "", "link_factor": 1.0, "network": "",
                   "host_gap_us": null, "host_gap_us_per_request": 0.0, "cold_start_ms": 0.0,
                   "frontend": {"fixed_ms": 0.0, "us_per_prompt_token": 0.0},
                   "noise": "none", "gpu_memory_utilization": 0.9, "reserved_memory_gib": null,
                   "max_graph_tokens": "auto", "max_prompt_graph_tokens": "auto",
                   "eager_us_per_layer": null, "step_factor": 1.0, "prompt_factor": 1.0,
                   "expert_overhead_us": null, "tp_overhead_us": null, "fuses_conversions": "auto"},
    "client": {"preset": "none", "frontend": {"fixed_ms": null, "us_per_prompt_token": null},
               "shortest_share": null, "output_scatter": null, "distinct_prompts": 0},
    "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": null,
                 "stop_token_ids": [], "ignore_eos": true, "logprobs": null},
    "cpu": {"threads": "auto", "kv_cache_gib": null},
    "cuda": {"device": 0, "gpu_memory_utilization": 0.9, "kv_cache_gib": null,
             "invariance": "chunk", "graphs": true, "early_launches": false,
             "wgmma_attention": false, "wgmma_products": false,
             "fused_decodes": false, "max_pass_tokens": 8192},
    "slo": {"preset": "none", "ttft_ms": null, "tpot_ms": null, "itl_ms": null,
            "e2el_ms": null, "itl_share": null, "longest_gap_ms": null, "decode_rate": null,
            "output_throughput": null, "cost_per_million_output_tokens": null},
    "results": {"steps": "auto", "requests": "auto", "trace": "auto", "outputs": false,
                "report": true, "bands": 0}})");
  CHECK(shown == expected);
}

TEST_CASE("the resolved config is stable JSON of the keys that apply", "[core][scenario]") {
  const Scenario first = load_one(minimal());
  CHECK(first.to_json() == load_one(minimal()).to_json());
  CHECK(first.to_json().starts_with("{\n  \"seed\": 0,\n  \"model\": \"llama-3.2-3b\",\n"));
  CHECK(first.to_json().ends_with("\n}"));
  const Json slotted = Json::parse(
      load_one(minimal() + "kv_cache: {backend: slotted}\nscheduler: {policy: static}\n")
          .to_json());
  CHECK(slotted["kv_cache"] == Json::parse(R"({"backend": "slotted", "dtype": "auto"})"));
  CHECK(slotted["scheduler"] == Json::parse(R"({"policy": "static", "batch_wait_ms": 0.0})"));
}

// The JSON of one scenario is YAML too, and holds everything the run depends on. Workloads of every
// kind: test_choices.cpp.
TEST_CASE("a resolved config reads back as itself", "[core][scenario]") {
  for (const PolicyInfo& policy : all_policies()) {
    for (const char* backend : {"paged", "slotted"}) {
      if (policy.requires_paged && std::string(backend) == "slotted") continue;
      const std::string text = minimal() + "seed: 9\nslo: {preset: llama3.1-8b-interactive}\n" +
                               "scheduler: {policy: " + std::string(policy.name) + "}\n" +
                               "kv_cache: {backend: " + backend + "}\n";
      const std::string resolved = load_one(text).to_json();
      INFO(resolved);
      CHECK(load_one(resolved + "\n").to_json() == resolved);
    }
  }
}

TEST_CASE("policy slo takes the targets of the SLO where it is given none", "[core][scenario]") {
  const std::string text = minimal() + "slo: {preset: llama3.1-8b-interactive, itl_ms: 40}\n";
  const auto shown = [&](const char* scheduler) {
    return Json::parse(load_one(text + scheduler).to_json())["scheduler"];
  };
  CHECK(shown("scheduler: {policy: slo, headroom: 0.05}\n") == Json::parse(R"(
      {"policy": "slo", "max_num_batched_tokens": 8192, "itl_target_ms": 40.0,
       "tpot_target_ms": 30.0, "ttft_deadline_ms": 500.0, "tile_tokens": 64, "headroom": 0.05,
       "late_share": 0.1, "max_held_steps": 16})"));
  const Json own = shown("scheduler: {policy: slo, itl_target_ms: 20, ttft_deadline_ms: 300}\n");
  CHECK(own["itl_target_ms"] == 20.0);
  CHECK(own["tpot_target_ms"] == 30.0);
  CHECK(own["ttft_deadline_ms"] == 300.0);
}

// ---- every key ----

// The value of "a.b.c".
const Json& value_at(const Json& json, const std::string& key) {
  const std::size_t dot = key.find('.');
  const Json& value = json.at(key.substr(0, dot));
  return dot == key.npos ? value : value_at(value, key.substr(dot + 1));
}

// Field by field, without the checks across fields: reading and showing agree on every key.
TEST_CASE("every documented key can be set and is shown", "[core][scenario]") {
  for (const DocumentedKey& key : documented_scenario_keys()) {
    if (key.example.empty()) continue;
    INFO("key " << key.key << ", example " << key.example);
    ConfigNode root;
    apply_assignment(root, key.key + "=" + key.example);
    Scenario scenario;
    ConfigReader reader(root, "");
    visit_fields(reader, scenario);
    reader.finish();
    const Json shown = Json::parse(
        fields_to_json([&](FieldVisitor& visitor) { visit_fields(visitor, scenario); }));
    CHECK(value_at(shown, key.key) == Json::parse(key.example));
    const bool has_one_value = key.type == "choice" && key.allowed.find(',') == std::string::npos;
    CHECK((key.example != key.default_value) != has_one_value);
  }
}

// A policy that has a use for the key and its example.
std::string policy_for(const DocumentedKey& key) {
  if (key.key == "scheduler.policy") return key.example.substr(1, key.example.size() - 2);
  const bool is_of_window = key.key == "kv_cache.sliding_window" ||
                            key.key == "kv_cache.num_window_groups" ||
                            key.key == "kv_cache.prefix_cache_retention_interval";
  const bool is_of_drafts = key.key.starts_with("speculative.");
  if (key.key == "kv_cache.enable_prefix_caching" || is_of_window || is_of_drafts) return "vllm";
  constexpr std::string_view kSection = "scheduler.";
  for (const PolicyInfo& policy : all_policies()) {
    if (!key.key.starts_with(kSection)) continue;
    if (reads_key(policy, std::string_view(key.key).substr(kSection.size()))) {
      return std::string(policy.name);
    }
  }
  return "token_budget";
}

// Settings that a key of `speculative` needs beside it.
std::vector<std::string> draft_settings(const std::string& key) {
  const auto is_about = [&key](std::string_view word) { return key.find(word) != key.npos; };
  std::vector<std::string> settings;
  const bool is_lookup = is_about("lookup") || is_about("ngram") || is_about("proposal");
  if (key != "speculative.method") {
    settings.push_back(std::string("speculative.method=") + (is_lookup ? "ngram"
                                                             : key == "speculative.model"
                                                                 ? "draft_model"
                                                                 : "eagle"));
  }
  if (key == "speculative.prompt_lookup_min") {
    settings.push_back("speculative.prompt_lookup_max=9");
  }
  if (is_about("acceptance")) settings.push_back("speculative.num_speculative_tokens=1");
  if (is_about("positions")) settings.push_back("speculative.acceptance.kind=positions");
  if (is_about(".log")) settings.push_back("speculative.acceptance.kind=log");
  if (is_about("mean_length")) {
    settings.push_back("speculative.acceptance.kind=length");
    if (is_about("tokens")) settings.push_back("speculative.acceptance.mean_length=[1.5]");
  }
  if (is_about("draft_tensor")) settings.push_back("cost_model.tensor_parallel_size=2");
  if (is_about("acceptance.kind")) settings.push_back("speculative.acceptance.mean_length=[1.5]");
  if (is_about("weights")) settings.push_back("speculative.acceptance.rate=[0.5]");
  return settings;
}

// A key is set in a whole scenario, where other keys may have to make room for it.
TEST_CASE("every documented key works in a scenario", "[core][scenario]") {
  for (const DocumentedKey& key : documented_scenario_keys()) {
    if (key.example.empty() || key.key.starts_with("workload.")) continue;
    std::vector<std::string> assignments = {key.key + "=" + key.example};
    assignments.push_back("scheduler.policy=" + policy_for(key));
    if (assignments.back() == "scheduler.policy=slo") assignments.push_back("slo.tpot_ms=30");
    if (key.key == "scheduler.chunk_unit_size" || key.key == "scheduler.chunked_prefill_size") {
      assignments.push_back("kv_cache.block_size=1");
    }
    if (key.key == "cost_model.noise_seeds") assignments.push_back("cost_model.noise=calibrated");
    if (key.key == "cost_model.host_gap_us_per_request") {
      assignments.push_back("cost_model.host_gap_us=400");
    }
    if (key.key == "kv_cache.num_window_groups" || key.key.ends_with("retention_interval")) {
      assignments.push_back("kv_cache.sliding_window=16");
    }
    if (key.key.starts_with("speculative.")) {
      for (std::string& setting : draft_settings(key.key)) {
        assignments.push_back(std::move(setting));
      }
    }
    if (key.key.starts_with("fleet.")) {
      if (key.key != "fleet.replicas") assignments.push_back("fleet.replicas=2");
      const std::size_t end = key.key.find('.', std::string_view("fleet.").size());
      const std::string section = key.key.substr(6, end == key.key.npos ? end : end - 6);
      if (find_router(section) != nullptr) assignments.push_back("fleet.router=" + section);
      for (const char* beside : {"fleet.gateway.max_in_flight=4", "fleet.scaling.min_replicas=1",
                                 "fleet.scaling.kv_use_above=1", "slo.ttft_ms=500"}) {
        const std::string_view setting = beside;
        const bool is_of_section =
            setting.starts_with("fleet." + section + ".") ||
            (setting.starts_with("slo.") && key.key.ends_with("slo_attainment_below"));
        if (is_of_section && !setting.starts_with(key.key + "=")) {
          assignments.emplace_back(setting);
        }
      }
    }
    // A step has to have a token for every running request.
    if (key.key == "scheduler.max_num_batched_tokens")
      assignments.push_back("engine.max_num_seqs=1");
    if (key.key.ends_with("output_tokens")) assignments.push_back("price_per_gpu_hour=1");
    INFO("key " << key.key);
    const Json shown = Json::parse(load_one(minimal(), assignments).to_json());
    CHECK(value_at(shown, key.key) == Json::parse(key.example));
  }
}

// ---- overrides ----

TEST_CASE("assignments set nested keys, sections and workload keys", "[core][scenario]") {
  const Scenario scenario =
      load_one(minimal(), {"scheduler.prefill_chunk_size=256", "slo={ttft_ms: 500, itl_ms: 30}",
                           "workload.num_requests=7", "seed=12", "engine.max_model_len=auto"});
  CHECK(scenario.scheduler.prefill_chunk_size == 256);
  CHECK(scenario.slo.ttft_ms == 500.0);
  CHECK(scenario.slo.itl_ms == 30.0);
  CHECK(scenario.workload.num_requests == 7);
  CHECK(scenario.seed == 12);
}

TEST_CASE("a backend's keys are merged where it runs the scenario", "[core][scenario]") {
  const std::string text = minimal() +
                           "scheduler: {policy: chunked, prefill_chunk_size: 64}\n"
                           "backends:\n"
                           "  cpu:\n"
                           "    model: tiny-llama\n"
                           "    workload: {num_requests: 2, prompt_tokens: {value: 7}}\n"
                           "    scheduler: {policy: continuous}\n"
                           "variants: [{name: a}, {name: b, model: tiny-qwen3}]\n";
  const ScenarioFile simulated = load(text);
  CHECK(simulated.variants[0].model == "llama-3.2-3b");
  CHECK(simulated.variants[0].workload.num_requests == 4);
  CHECK(simulated.variants[0].scheduler.prefill_chunk_size == 64);
  CHECK(load(text, {}, std::nullopt, "cuda").variants[0].model == "llama-3.2-3b");

  const ScenarioFile measured = load(text, {}, std::nullopt, "cpu");
  CHECK(measured.variants[0].model == "tiny-llama");
  CHECK(measured.variants[0].workload.num_requests == 2);
  CHECK(measured.variants[0].workload.prompt_tokens.value == 7);
  CHECK(measured.variants[0].workload.output_tokens.value == 10);
  CHECK(measured.variants[0].scheduler.policy == "continuous");  // has no use for the chunk size
  CHECK(measured.variants[0].hardware == "h200");
  CHECK(measured.variants[1].model == "tiny-qwen3");
  // Settings of the command line come last.
  CHECK(load(text, {"model=tiny-gemma3"}, std::nullopt, "cpu").variants[0].model == "tiny-gemma3");
}

TEST_CASE("a server needs of the workload what it reads", "[core][scenario]") {
  using testing::contains;
  const ScratchFolder scratch;
  const auto load_for = [&scratch](const std::string& more, WorkloadUse use) {
    const std::string file = scratch.write("served.yaml", "model: tiny-llama\n" + more);
    return load_scenario(file, {}, std::nullopt, "cpu", use).variants.front().workload;
  };
  const auto refusal = [&](const std::string& more, WorkloadUse use) {
    return testing::error_of([&] { (void)load_for(more, use); });
  };
  CHECK(load_for("", WorkloadUse::Nothing).num_requests == 1);
  CHECK(load_for("workload: {num_requests: 7}\n", WorkloadUse::Nothing).num_requests == 7);
  CHECK(load_for("workload: {output_tokens: {value: 9}}\n", WorkloadUse::AnswerLengths)
            .output_tokens.value == 9);
  CHECK(contains(refusal("", WorkloadUse::AnswerLengths), "workload.output_tokens"));
  CHECK(contains(refusal("", WorkloadUse::Requests), "workload: required key is missing"));
  CHECK(contains(refusal("workload: {output_tokens: {value: 9}}\n", WorkloadUse::Requests),
                 "workload.arrivals"));
  // Given keys are checked, read or not.
  CHECK(contains(refusal("workload: {num_request: 7}\n", WorkloadUse::Nothing), "num_request"));
  CHECK(contains(refusal("workload: 3\n", WorkloadUse::Nothing), "workload"));
}

TEST_CASE("a later assignment wins", "[core][scenario]") {
  CHECK(load_one(minimal(), {"seed=1", "seed=2"}).seed == 2);
}

TEST_CASE("an assignment may add the variants or a whole list item", "[core][scenario]") {
  const ScenarioFile file =
      load(minimal(), {"variants=[{name: a}, {name: b, seed: 5}]", "variants.0.seed=3"});
  REQUIRE(file.variants.size() == 2);
  CHECK(file.variants[0].seed == 3);
  CHECK(file.variants[1].seed == 5);
}

TEST_CASE("the seed argument overrides every seed", "[core][scenario]") {
  const ScenarioFile file =
      load(minimal() + "seed: 1\nvariants: [{name: a}, {name: b, seed: 2}]\n", {}, 77);
  CHECK(file.variants[0].seed == 77);
  CHECK(file.variants[1].seed == 77);
}

TEST_CASE("seeds reach the largest integer of YAML", "[core][scenario]") {
  CHECK(load_one(minimal() + "seed: 9223372036854775807\n").seed == 9223372036854775807u);
  CHECK_THROWS_AS(load(minimal(), {}, 9223372036854775808u), ConfigError);
}

// ---- variants ----

constexpr const char* kVariants =
    "engine: {max_num_seqs: 32}\n"
    "scheduler: {policy: token_budget, max_num_batched_tokens: 512, prefill_chunk_size: 128}\n"
    "variants:\n"
    "  - {name: inherits}\n"
    "  - {name: own.chunk, scheduler: {prefill_chunk_size: 64}, engine: {async_depth: 2}}\n"
    "  - {name: chunked, scheduler: {policy: chunked}}\n"
    "  - {name: static, scheduler: {policy: static, batch_wait_ms: 5}, model: qwen3-4b}\n";

TEST_CASE("variants inherit, override and drop what another policy has no use for",
          "[core][scenario]") {
  const ScenarioFile file = load(minimal() + kVariants);
  CHECK(file.has_variants);
  REQUIRE(file.variants.size() == 4);
  const Scenario& inherits = file.variants[0];
  CHECK(inherits.name == "inherits");
  CHECK(inherits.scheduler.max_num_batched_tokens == 512);
  CHECK(inherits.scheduler.prefill_chunk_size == 128);
  CHECK(inherits.engine.async_depth == 1);
  const Scenario& own = file.variants[1];
  CHECK(own.name == "own.chunk");
  CHECK(own.scheduler.max_num_batched_tokens == 512);
  CHECK(own.scheduler.prefill_chunk_size == 64);
  CHECK(own.engine.max_num_seqs == 32);
  CHECK(own.engine.async_depth == 2);
  const Scenario& chunked = file.variants[2];
  CHECK(chunked.scheduler.policy == "chunked");
  CHECK(chunked.scheduler.prefill_chunk_size == 128);       // chunked reads it
  CHECK(chunked.scheduler.max_num_batched_tokens == 2048);  // dropped: back to the default
  const Scenario& fixed = file.variants[3];
  CHECK(fixed.scheduler.policy == "static");
  CHECK_FALSE(fixed.scheduler.prefill_chunk_size.has_value());
  CHECK(fixed.scheduler.batch_wait_ms == 5);
  CHECK(fixed.model == "qwen3-4b");
  CHECK(inherits.model == "llama-3.2-3b");
}

TEST_CASE("variants may change the workload and the hardware", "[core][scenario]") {
  const ScenarioFile file =
      load(minimal() +
           "variants:\n"
           "  - {name: a, hardware: a100, workload: {num_requests: 9, arrivals: {rate: 3}}}\n"
           "  - {name: b, slo: {ttft_ms: 100}, results: {steps: false}}\n");
  CHECK(file.variants[0].hardware == "a100");
  CHECK(file.variants[0].workload.num_requests == 9);
  CHECK(file.variants[0].workload.arrivals.rate == 3);
  CHECK(file.variants[0].workload.prompt_tokens.value == 100);
  CHECK(file.variants[1].slo.ttft_ms == 100.0);
  CHECK(file.variants[1].results.steps == false);
}

TEST_CASE("an assignment addresses the base or one variant", "[core][scenario]") {
  const ScenarioFile file =
      load(minimal() + kVariants,
           {"scheduler.prefill_chunk_size=256", "variants.own.chunk.engine.async_depth=1",
            "variants.static.scheduler.batch_wait_ms=7", "variants.inherits.seed=5"});
  CHECK(file.variants[0].scheduler.prefill_chunk_size == 256);
  CHECK(file.variants[0].seed == 5);
  CHECK(file.variants[1].scheduler.prefill_chunk_size == 64);  // its own comes after the base
  CHECK(file.variants[1].engine.async_depth == 1);
  CHECK(file.variants[2].scheduler.prefill_chunk_size == 256);
  CHECK(file.variants[3].scheduler.batch_wait_ms == 7);
}

TEST_CASE("an assigned policy drops the keys of the old one", "[core][scenario]") {
  const std::string text =
      minimal() + "scheduler: {policy: token_budget, prefill_chunk_size: 64, min_chunk_size: 8}\n";
  const Scenario chunked =
      load_one(text, {"scheduler.max_prefill_chunks_per_step=3", "scheduler.policy=chunked"});
  CHECK(chunked.scheduler.policy == "chunked");
  CHECK(chunked.scheduler.prefill_chunk_size == 64);
  CHECK(chunked.scheduler.max_prefill_chunks_per_step == 3);
  CHECK(chunked.scheduler.min_chunk_size == 1);
  const ScenarioFile file =
      load(minimal() + kVariants, {"variants.chunked.scheduler.policy=static"});
  CHECK(file.variants[2].scheduler.policy == "static");
  const std::string refused =
      error_of(text, {"scheduler.policy=continuous", "scheduler.min_chunk_size=4"});
  CHECK(refused.starts_with("--set scheduler.min_chunk_size: policy 'continuous' does not use"));
}

TEST_CASE("a variant with slots drops what only blocks have", "[core][scenario]") {
  const ScenarioFile file =
      load(minimal() +
           "kv_cache: {block_size: 32, num_blocks: 100, watermark: 0.1}\n"
           "variants: [{name: paged}, {name: slotted, kv_cache: {backend: slotted}}]\n");
  CHECK(file.variants[0].kv_cache.block_size == 32);
  CHECK(file.variants[0].kv_cache.num_blocks == 100);
  CHECK(file.variants[1].kv_cache.backend == KvBackend::Slotted);
  CHECK_FALSE(file.variants[1].kv_cache.num_blocks.has_value());
  CHECK(load_one(minimal() + "kv_cache: {block_size: 32}\n", {"kv_cache.backend=slotted"})
            .kv_cache.backend == KvBackend::Slotted);
}

TEST_CASE("an assignment that every variant overrides is a mistake", "[core][scenario]") {
  const std::string text =
      minimal() + "variants: [{name: a, seed: 1}, {name: b, scheduler: {policy: static}}]\n";
  CHECK(load(text, {"seed=4"}).variants[1].seed == 4);
  CHECK(error_of(minimal() + "variants: [{name: a, seed: 1}, {name: b, seed: 2}]\n", {"seed=4"}) ==
        "--set seed: has no effect: every variant overrides or drops this key; allowed: "
        "variants.NAME.seed for one variant");
  CHECK(error_of(minimal() + "variants: [{name: b, scheduler: {policy: static}}]\n",
                 {"scheduler.prefill_chunk_size=4"}) ==
        "--set scheduler.prefill_chunk_size: has no effect: every variant overrides or drops "
        "this key; allowed: variants.NAME.scheduler.prefill_chunk_size for one variant");
}

// ---- SLO presets and paths ----

TEST_CASE("an SLO preset sets limits that keys beside it override", "[core][scenario]") {
  const SloConfig plain = load_one(minimal() + "slo: {preset: llama3.1-8b-conversational}\n").slo;
  CHECK(plain.ttft_ms == 2000.0);
  CHECK(plain.tpot_ms == 100.0);
  CHECK_FALSE(plain.itl_ms.has_value());
  const SloConfig mixed =
      load_one(minimal() +
               "slo: {tpot_ms: 50, ttft_ms: null, itl_ms: 9, preset: llama2-70b-interactive}\n")
          .slo;
  CHECK_FALSE(mixed.ttft_ms.has_value());
  CHECK(mixed.tpot_ms == 50.0);
  CHECK(mixed.itl_ms == 9.0);
  struct Limits {
    const char* preset;
    double ttft_ms;
    double tpot_ms;
  };
  const Limits all[] = {
      {"llama3.1-8b-interactive", 500, 30},    {"llama2-70b-server", 2000, 200},
      {"llama2-70b-interactive", 450, 40},     {"llama3.1-405b-server", 6000, 175},
      {"llama3.1-405b-interactive", 4500, 80}, {"deepseek-r1-server", 2000, 80},
      {"deepseek-r1-interactive", 1500, 15},   {"gpt-oss-120b-server", 3000, 80},
      {"gpt-oss-120b-interactive", 2000, 20}};
  for (const Limits& limits : all) {
    INFO(limits.preset);
    const SloConfig slo = load_one(minimal(), {std::string("slo.preset=") + limits.preset}).slo;
    CHECK(slo.ttft_ms == limits.ttft_ms);
    CHECK(slo.tpot_ms == limits.tpot_ms);
  }
}

TEST_CASE("paths given by --set are relative to the current folder", "[core][scenario]") {
  const auto set_model = [](const std::string& path) {
    return load_one(minimal(), {"model=" + path}).model;
  };
  CHECK(set_model("./x/config.json") == "./x/config.json");
  CHECK(set_model("/abs/config.json") == "/abs/config.json");
  const std::string text = "model: llama-3.2-3b\nhardware: h200\nworkload: {trace: in_file.csv}\n";
  const auto trace_of = [&text](const std::vector<std::string>& assignments) {
    return load_one(text, assignments).workload.trace.file;
  };
  CHECK(trace_of({}).ends_with("/in_file.csv"));
  CHECK(trace_of({"workload.trace.file=x.csv"}) == "x.csv");
  CHECK(trace_of({"workload.trace=../x.csv"}) == "../x.csv");
  CHECK(trace_of({"workload.trace.limit=5"}).ends_with("/in_file.csv"));
}

TEST_CASE("a scenario's name is printable whatever its file is called", "[core][scenario]") {
  const ScratchFolder folder;
  const ScenarioFile file = load_scenario(folder.write("caf\xe9.yaml", minimal()), {}, {});
  CHECK(file.name == "caf\xe9");
  CHECK(file.variants[0].name == "caf\\xe9");
}

TEST_CASE("a repository's name finds the catalogue's model, unless it is a path",
          "[core][scenario]") {
  CHECK(load_one(minimal(), {"model=Qwen/Qwen3-4B"}).model == "qwen3-4b");
  const ScratchFolder folder;
  std::filesystem::create_directories(folder.path() + "/Qwen/Qwen3-4B");
  std::string text = minimal();
  text.replace(text.find("model: "), text.find('\n', text.find("model: ")) - text.find("model: "),
               "model: Qwen/Qwen3-4B");
  const std::string path = folder.write("s.yaml", text);
  CHECK(load_scenario(path, {}, std::nullopt).variants.front().model ==
        folder.path() + "/Qwen/Qwen3-4B");
}

TEST_CASE("model paths are relative to the scenario's folder", "[core][scenario]") {
  const ScratchFolder folder;
  const auto model_of = [&](const std::string& model) {
    const std::string path =
        folder.write("sub/case.yaml", "model: " + model + "\nhardware: h200\n" + kWorkload);
    return load_scenario(path, {}, std::nullopt).variants[0].model;
  };
  CHECK(model_of("llama-3.2-3b") == "llama-3.2-3b");
  CHECK(model_of("config.json") == folder.path() + "/sub/config.json");
  CHECK(model_of("../models/tiny") == folder.path() + "/models/tiny");
  CHECK(model_of("/abs/config.json") == "/abs/config.json");
}

}  // namespace
}  // namespace metronome::TEST_FILE
