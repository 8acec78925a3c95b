// A scenario: everything a run depends on. YAML in, validated structs out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_reader.h"
#include "core/config/config_writer.h"
#include "core/engine/engine_config.h"
#include "core/engine/scheduler_config.h"
#include "core/metrics/slo_config.h"
#include "core/scenario/backend_sections.h"
#include "core/workload/workload_config.h"

namespace metronome {

enum class Batching : std::uint8_t { Ragged, Padded };
enum class StepNoise : std::uint8_t { None, Calibrated };

struct CostModelConfig {
  // A file that `metronome calibrate` wrote, or the name of one that comes with the program; empty:
  // the roofline of the hardware.
  std::string file;
  Batching batching = Batching::Ragged;
  bool gather_kv = false;  // KV is copied out of its blocks before attention
  std::int32_t tensor_parallel_size = 1;
  std::optional<double> host_gap_us;    // overrides the file's and the hardware's
  double cold_start_ms = 0;             // host time of the engine's first launch
  StepNoise noise = StepNoise::None;    // drawn as the file's steps scattered
  std::int32_t noise_seeds = 8;         // draws that a run's figures are given a band over; 1: none
  double gpu_memory_utilization = 0.9;  // share of device memory for weights and KV
  // Passes up to that many tokens run as captured CUDA graphs, padded to a captured size, where the
  // cost model is a file that knows of it; absent: vLLM's min(2 max_num_seqs, 512).
  std::optional<std::int64_t> max_graph_tokens;
};

// Where the weights come from that a backend computes with.
enum class Weights : std::uint8_t {
  Auto,    // the files of the model folder; drawn where `model` names a shape only
  Random,  // drawn from the seed
};

// How a backend that computes chooses tokens: core/engine/sampling.h. The simulator's have no
// content.
struct SamplingConfig {
  double temperature = 0;
  std::int32_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::optional<std::int64_t> seed;  // null = the scenario's; each request has its own from it
  std::vector<std::int64_t> stop_token_ids;
  // Outputs are as long as the workload says, so that a measured run compares with a simulated one.
  bool ignore_eos = true;
  std::optional<std::int64_t> logprobs;  // likeliest tokens to write beside the sampled one
};

struct ResultsConfig {
  bool steps = true;     // write steps.jsonl
  bool requests = true;  // write requests.jsonl
  bool trace = true;     // write trace.json
  bool outputs = false;  // write outputs.jsonl, where the backend computes tokens
  bool report = true;    // show the run in report.html, beside summary.json
};

struct Scenario {
  std::string name;  // variant name, or the file's stem made printable
  std::uint64_t seed = 0;
  std::string model;  // catalogue name, config.json, or model folder
  Weights weights = Weights::Auto;
  std::string hardware;  // simulation only: catalogue name, or a YAML file; may be empty
  EngineConfig engine;
  KvCacheConfig kv_cache;
  SchedulerConfig scheduler;
  CostModelConfig cost_model;
  SamplingConfig sampling;
  BackendSections backends;  // `cpu`, `cuda`: what backends have registered
  WorkloadConfig workload;
  SloConfig slo;
  ResultsConfig results;

  // The tree it was read from, variants merged; null for a scenario put together by hand.
  std::shared_ptr<const ConfigNode> source;
  // Where a key ("engine.max_num_seqs") was given, or the section or file that it is missing from.
  SourceLocation location_of(std::string_view key) const;

  // The resolved config as JSON: every key that applies, defaults included, two-space indent. Keys
  // that a choice (policy, KV backend, arrival process, ...) has no use for are left out. JSON is
  // YAML: saved in the current folder, to which paths are relative, it is a scenario that resolves
  // to itself.
  std::string to_json() const;

  // Says where step times come from, so that it can be simulated.
  bool names_step_times() const { return !hardware.empty() || !cost_model.file.empty(); }
};

// Keys, ranges and meaning of each section. Shown an unknown policy, they break an invariant.
void visit_fields(FieldVisitor& visitor, CostModelConfig& config);
void visit_fields(FieldVisitor& visitor, SamplingConfig& config);
void visit_fields(FieldVisitor& visitor, ResultsConfig& config);
void visit_fields(FieldVisitor& visitor, Scenario& scenario);

// Every key a scenario file may hold, in the order of the documentation. `description`, `backends`
// and `variants` belong to the file, not to a Scenario, and have no example.
std::vector<DocumentedKey> documented_scenario_keys();

// Throws ConfigError for what no single field can tell: a missing required key, keys that
// contradict each other, keys the chosen policy or backend has no use for; not for the workload,
// which read_workload_config() checks. `source` is the tree the scenario was read from: it says
// which keys were given, and where.
void validate_scenario(const Scenario& scenario, const ConfigNode& source);

// A scenario file after overrides: one entry per variant (one named after the file if it has
// none). A relative model path (a name with a '/' or ending in .json) or trace path is relative to
// the scenario file's folder; one that `--set` gave, to the current folder, where shells complete
// paths.
struct ScenarioFile {
  std::string path;
  std::string name;  // the file's stem
  std::string description;
  bool has_variants = false;
  std::vector<Scenario> variants;
  ConfigNode sweep;  // what `metronome sweep` varies, as it stands in the file; Null: nothing
};

// A variant's name becomes a folder's: at most this long, and with no ending of a result file.
constexpr std::size_t kMaxVariantNameLength = 64;

// What `backends` may name, and --backend.
constexpr std::string_view kBackendNames[] = {"sim", "cpu", "cuda"};

// Reads, merges the keys under `backends.BACKEND` into the base, applies `--set` assignments (to
// the base, before variants; a prefix `variants.NAME.` addresses one variant), merges variants,
// validates. `seed` overrides every `seed` key. Throws ConfigError at the first mistake.
//
// A variant (or --set) that names another policy, KV backend, arrival process, length
// distribution, kind of prefix or trace format drops inherited keys which that choice has no use
// for; the same key given next to it is an error. Naming a trace is such a choice too: it drops
// the inherited description of drawn requests, arrivals included; `trace: null` drops the inherited
// trace. The file's own base has to be right by itself: a key of no use to a choice made beside it
// is an error there even if every variant drops it. Another error is a --set whose value every
// variant overrides or drops: it would change nothing.
ScenarioFile load_scenario(const std::string& path, const std::vector<std::string>& assignments,
                           std::optional<std::uint64_t> seed,
                           std::string_view backend = kBackendNames[0]);

// The same from a text, which complaints call `path`. Relative paths are the current folder's.
ScenarioFile parse_scenario(std::string_view text, const std::string& path,
                            const std::vector<std::string>& assignments);

}  // namespace metronome
