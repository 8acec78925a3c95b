// SPDX-License-Identifier: Apache-2.0
// The keys of a scenario: names, ranges and meaning.
#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/config/config_limits.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_keys.h"

namespace metronome {
namespace {

constexpr std::string_view kWeights[] = {"auto", "random"};
constexpr std::string_view kQuantizations[] = {"auto",  "none",  "fp8", "fp8_block",
                                               "nvfp4", "mxfp4", "int4"};
constexpr std::string_view kKvDtypes[] = {"auto", "bf16", "fp8"};
constexpr std::string_view kBatchings[] = {"ragged", "padded"};
constexpr std::string_view kNoises[] = {"none", "calibrated"};

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

template <class Config>
void visit_section(FieldVisitor& visitor, const char* key, Config& config, const char* doc) {
  if (!visitor.open_section(key, doc)) return;
  visit_fields(visitor, config);
  visitor.close_section();
}

void visit_kv_cache(FieldVisitor& visitor, Scenario& scenario) {
  if (!visitor.open_section("kv_cache", "key-value cache")) return;
  visit_fields(visitor, scenario.kv_cache);
  visitor.choice("dtype", scenario.kv_dtype, kKvDtypes,
                 "for simulation: the type of cached keys and values; auto: as the model's file "
                 "says, else bf16");
  visitor.close_section();
}

// Times of an engine's kernels and launches, where a scenario knows them better.
void visit_engine_times(FieldVisitor& visitor, CostModelConfig& config) {
  visitor.integer_or_auto(
      "max_graph_tokens", config.max_graph_tokens, 0, 65536,
      "tokens of the largest pass that the host launches as one CUDA graph; auto: "
      "min(2 max_num_seqs (1 + drafts), 512); vllm, sglang: by hardware; tensorrt_llm: "
      "min(max_num_seqs, 128)");
  visitor.integer_or_auto(
      "max_prompt_graph_tokens", config.max_prompt_graph_tokens, 0, kAllPromptsInGraphs,
      "the same of passes with prompts; auto: max_graph_tokens; sglang: all, but none without "
      "graphs of decodes, and for some models (docs/guide/engines.md); tensorrt_llm, nano_vllm, "
      "vllm_prefill_first: 0");
  visitor.optional_number(
      "eager_us_per_layer", config.eager_us_per_layer, 0, 1e6,
      "host time for the launches of a layer where no CUDA graph has them, microseconds; a pass "
      "takes no less; null: by the engine and the kind of layer (docs/guide/engines.md)");
  visitor.number(
      "step_factor", config.step_factor, 1, 100,
      "roofline: times the device time of a step; a release of an engine may be slower than "
      "the one whose kernels are known");
  visitor.number(
      "prompt_factor", config.prompt_factor, 1, 100,
      "roofline: times the device time that prompts add to a step; serving may take longer "
      "for them than kernels alone");
  visitor.optional_number("expert_overhead_us", config.expert_overhead_us, 0, 1e6,
                          "roofline: starts of the kernels of a layer of experts, microseconds; "
                          "null: the hardware's");
  visitor.optional_number("tp_overhead_us", config.tp_overhead_us, 0, 1e6,
                          "roofline: what a layer of several GPUs takes beside its all-reduces, "
                          "microseconds; null: the hardware's");
  visitor.boolean_or_auto(
      "fuses_conversions", config.fuses_conversions,
      "roofline: norms write activations in fp8 and nvfp4, no kernel converts them for dense "
      "projections, but for fp8_block; auto: true for tensorrt_llm");
}

}  // namespace

void visit_fields(FieldVisitor& visitor, FrontEndConfig& config) {
  visitor.number("fixed_ms", config.fixed_ms, 0, 1e6, "of each request, milliseconds");
  visitor.number("us_per_prompt_token", config.us_per_prompt_token, 0, 1e6,
                 "microseconds a prompt token");
}

void visit_fields(FieldVisitor& visitor, CostModelConfig& config) {
  visitor.name_or_path(
      "file", config.file,
      "measured step times: a name of `metronome list costs`, or the path of a file that "
      "`metronome calibrate` wrote, relative to the scenario's folder, or with --set to "
      "the current folder; empty: the hardware's roofline");
  visitor.choice("batching", config.batching, kBatchings,
                 "ragged: sequences are packed; padded: to the longest of the batch");
  visitor.boolean("gather_kv", config.gather_kv, "copy KV out of its blocks before attention");
  visitor.integer("tensor_parallel_size", config.tensor_parallel_size, 1, 64,
                  "GPUs that share each layer");
  visitor.name_or_path(
      "link", config.link,
      "what joins the GPUs of a host: a name of `metronome list links`, or the path of a "
      "CSV file with times of collectives; empty: the hardware's");
  visitor.number("link_factor", config.link_factor, 0.01, 100, "times collectives");
  visitor.name_or_path(
      "network", config.network,
      "what joins hosts, as `link`, where an engine has more GPUs than its link joins; "
      "empty: none");
  visitor.optional_number("host_gap_us", config.host_gap_us, 0, 1e6,
                          "host time between steps, microseconds; null: that of the file, else of "
                          "the hardware, else of the engine (metronome list policies)");
  visitor.number(
      "host_gap_us_per_request", config.host_gap_us_per_request, 0, 1e6,
      "microseconds in addition for each request of the step; needs host_gap_us (without both: "
      "the engine's)");
  visitor.number(
      "cold_start_ms", config.cold_start_ms, 0, 1e6,
      "simulated host time of the engine's first launch; the engine takes no arrivals in it");
  visit_section(visitor, "frontend", config.frontend,
                "HTTP, tokenising and hand-over before the engine sees a request; 0: as in an "
                "engine's own log; or client.frontend instead");
  visitor.choice(
      "noise", config.noise, kNoises,
      "none: exact step times; calibrated: scattered like the measured steps of a file of "
      "kind fitted, drawn from the seed");
  visitor.integer(
      "noise_seeds", config.noise_seeds, 1, 1000,
      "with noise calibrated: how often `metronome run` simulates a variant, with "
      "different draws, to give a range for each figure; results and other commands use "
      "the first; 1: no ranges");
  visitor.number("gpu_memory_utilization", config.gpu_memory_utilization, 0.01, 1,
                 "share of device memory for the engine; vllm, sglang: by hardware");
  visitor.optional_number(
      "reserved_memory_gib", config.reserved_memory_gib, 0, 1e6,
      "what neither weights nor KV blocks get of that share, GiB: activations, "
      "CUDA graphs, the runtime; null: by the engine (docs/internals/cost_models.md)");
  visit_engine_times(visitor, config);
}

void visit_fields(FieldVisitor& visitor, SamplingConfig& config) {
  visitor.number("temperature", config.temperature, 0, 100, "0: greedy");
  visitor.integer("top_k", config.top_k, 0, kMaxInt32, "keep the k likeliest tokens; 0: all");
  visitor.number("top_p", config.top_p, 1e-6, 1,
                 "keep the likeliest tokens that together reach this share");
  visitor.number("min_p", config.min_p, 0, 1,
                 "keep tokens with at least this share of the likeliest token's probability");
  visitor.optional_integer("seed", config.seed, 0, kMaxSeed,
                           "the seeds of the requests derive from it; null: the scenario's seed");
  visitor.integers("stop_token_ids", config.stop_token_ids, 0, kMaxInt32,
                   "a request ends at the first of these tokens");
  visitor.boolean("ignore_eos", config.ignore_eos,
                  "outputs have the workload's lengths; end-of-text tokens do not end them. "
                  "Policy sglang then counts with the whole length of each output");
  visitor.optional_integer("logprobs", config.logprobs, 0, 1024,
                           "likeliest tokens that outputs.jsonl has in addition to the sampled "
                           "token; null: no logprobs");
}

void visit_fields(FieldVisitor& visitor, ResultsConfig& config) {
  visitor.boolean_or_auto("steps", config.steps,
                          "write steps.jsonl; auto: `metronome run` leaves it out beyond 64 MB");
  visitor.boolean_or_auto("requests", config.requests, "write requests.jsonl; auto: as for steps");
  visitor.boolean_or_auto("trace", config.trace,
                          "write trace.json, for ui.perfetto.dev; beyond 48 MiB, only the part "
                          "around its longest stall; auto: true, but false in a sweep");
  visitor.boolean("outputs", config.outputs,
                  "write outputs.jsonl, the tokens; backends that compute");
  visitor.boolean("report", config.report, "show the run in report.html");
  visitor.integer("bands", config.bands, 0, 1000,
                  "for simulation: so many other seeds, and steps as fast and as slow as in nine "
                  "of ten measured runs like it, give each figure a range; 0: no ranges");
}

void visit_before_workload(FieldVisitor& visitor, Scenario& scenario) {
  std::int64_t seed = static_cast<std::int64_t>(scenario.seed);
  visitor.integer("seed", seed, 0, kMaxSeed, "seed of every random draw");
  scenario.seed = static_cast<std::uint64_t>(seed);
  visitor.name_or_path(
      "model", scenario.model,
      "catalogue name, or path of a Hugging Face config.json or model folder, relative to "
      "the scenario's folder, or with --set to the current folder");
  visitor.choice(
      "weights", scenario.weights, kWeights,
      "for backends that compute: the files of the model folder, or random weights drawn "
      "from the seed; auto: files if the model is a folder");
  visitor.choice("quantization", scenario.quantization, kQuantizations,
                 "for simulation: how attention, MLPs and experts are stored; mxfp4: experts only; "
                 "auto: as the model's file or name says");
  visitor.name_or_path(
      "hardware", scenario.hardware,
      "for simulation, policy slo and the defaults of vllm and sglang: catalogue name, or "
      "the path of a YAML file with one entry, relative as that of the model");
  visitor.optional_number("price_per_gpu_hour", scenario.price_per_gpu_hour, 0, 1e6,
                          "what an hour of one GPU costs, in any currency; results then have the "
                          "cost per million tokens; null: unknown");
  visit_section(visitor, "engine", scenario.engine, "the serving engine");
  visit_kv_cache(visitor, scenario);
  visit_section(visitor, "scheduler", scenario.scheduler, "the policy and its settings");
  visit_section(visitor, "speculative", scenario.speculative, "speculative decoding: drafts");
  visit_section(visitor, "cost_model", scenario.cost_model, "step times in simulation");
  visit_section(visitor, "fleet", scenario.fleet, "several engines behind a router");
  visit_section(visitor, "client", scenario.client, "in simulation: who sends the requests");
  visit_section(visitor, "sampling", scenario.sampling, "how backends that compute choose tokens");
  scenario.backends.visit(visitor);
}

void visit_after_workload(FieldVisitor& visitor, Scenario& scenario) {
  visit_section(visitor, "slo", scenario.slo, "latency limits a good request meets");
  visit_section(visitor, "results", scenario.results, "the files to write");
}

void visit_fields(FieldVisitor& visitor, Scenario& scenario) {
  visit_before_workload(visitor, scenario);
  visit_section(visitor, "workload", scenario.workload, "requests and their arrivals");
  visit_after_workload(visitor, scenario);
}

std::vector<DocumentedKey> documented_scenario_keys() {
  std::vector<DocumentedKey> keys = {
      {"description", "string", "any string", "\"\"", "a description of the scenario", ""}};
  Scenario defaults;
  for (DocumentedKey& key : document_fields([&](FieldVisitor& v) { visit_fields(v, defaults); })) {
    keys.push_back(std::move(key));
  }
  keys.push_back({"backends", "mapping", "sim, cpu, cuda: each with any other keys", "none",
                  "keys that differ when that backend runs the scenario", ""});
  keys.push_back({"variants", "list of mappings", "each with a unique `name` and any other keys",
                  "none", "settings to run side by side on the same workload", ""});
  keys.push_back({"sweep", "mapping", "over: {KEY: [VALUE, ...]}, points: [{KEY: VALUE, ...}]",
                  "none", "the settings at which `metronome sweep` runs the scenario", ""});
  return keys;
}

const ConfigNode& scenario_defaults() {
  static const ConfigNode defaults = [] {
    Scenario plain;
    return fields_to_node([&plain](FieldVisitor& visitor) { visit_fields(visitor, plain); });
  }();
  return defaults;
}

Json Scenario::resolved() const {
  Scenario shown = *this;
  const FieldVisit visit = [&shown](FieldVisitor& visitor) { visit_fields(visitor, shown); };
  std::vector<std::string> unused = unused_keys(fields_to_node(visit), scenario_choices());
  if (!fleet.is_on()) unused.emplace_back("fleet");
  return fields_to_value(visit, unused);
}

Json Scenario::value(std::string_view key) const {
  Json found = resolved();
  while (true) {
    const std::size_t end = std::min(key.find('.'), key.size());
    const Json* const member = found.is_object() ? found.find(key.substr(0, end)) : nullptr;
    if (member == nullptr) return {};
    found = Json(*member);
    if (end == key.size()) return found;
    key.remove_prefix(end + 1);
  }
}

std::string Scenario::to_json() const { return resolved().dump(2); }

std::string Scenario::to_yaml() const {
  std::string text = to_json();
  for (const ServeDefault& given : serve_defaults) {
    const std::size_t dot = given.key.find('.');
    const bool has_section = dot != std::string::npos;
    const std::string section = has_section ? "\n  \"" + given.key.substr(0, dot) + "\": {" : "";
    const std::string key = has_section ? "\n    \"" + given.key.substr(dot + 1) + "\": "
                                        : "\n  \"" + given.key + "\": ";
    const std::size_t line = text.find(key, text.find(section));
    METRONOME_CHECK(line != std::string::npos, "a default is a key of the resolved config");
    text.insert(std::min(text.find('\n', line + 1), text.size()), "  # " + given.reason);
  }
  return text;
}

}  // namespace metronome
