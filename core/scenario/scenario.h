// SPDX-License-Identifier: Apache-2.0
// A scenario: everything a run depends on. Parses YAML into validated structs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_reader.h"
#include "core/config/config_writer.h"
#include "core/engine/engine_config.h"
#include "core/engine/scheduler_config.h"
#include "core/metrics/slo_config.h"
#include "core/scenario/backend_sections.h"
#include "core/scenario/client_config.h"
#include "core/scenario/cost_model_config.h"
#include "core/scenario/fleet_config.h"
#include "core/scenario/serve_defaults.h"
#include "core/scenario/setting.h"
#include "core/scenario/speculative_config.h"
#include "core/workload/workload_config.h"

namespace metronome {

// How the simulator takes weights to be stored, in the words of vLLM's --quantization.
enum class Quantization : std::uint8_t {
  Auto,  // as the model's file says
  None,
  Fp8,
  Fp8Block,
  Nvfp4,
  Mxfp4,  // experts only
  Int4,
};
enum class KvDtype : std::uint8_t { Auto, Bf16, Fp8 };  // auto: as the model's file says

// The source of the weights of a computing backend.
enum class Weights : std::uint8_t {
  Auto,    // the model folder's files; random if `model` names only a shape
  Random,  // drawn from the seed
};

// How a computing backend samples tokens: core/engine/sampling.h. The simulator's tokens have no
// content.
struct SamplingConfig {
  double temperature = 0;
  std::int32_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::optional<std::int64_t> seed;  // null = the scenario's; each request's seed derives from it
  std::vector<std::int64_t> stop_token_ids;
  // Outputs have the workload's lengths, so that measured and simulated runs are comparable.
  bool ignore_eos = true;
  std::optional<std::int64_t> logprobs;  // likeliest tokens to write for each token
};

// Files that grow with the run: nullopt = written up to a size (`metronome run`), or always.
struct ResultsConfig {
  std::optional<bool> steps;     // write steps.jsonl
  std::optional<bool> requests;  // write requests.jsonl
  std::optional<bool> trace;     // write trace.json
  bool outputs = false;          // write outputs.jsonl, if the backend computes tokens
  bool report = true;            // show the run in report.html, next to summary.json
  std::int64_t bands = 0;        // other seeds that a run's figures get bands from; 0: no bands
};

struct Scenario {
  std::string name;  // variant name, or the file's stem made printable
  std::uint64_t seed = 0;
  std::string model;  // catalogue name, config.json, or model folder
  Weights weights = Weights::Auto;
  Quantization quantization = Quantization::Auto;  // of attention, MLPs and experts
  std::string hardware;  // simulation only: catalogue name, or a YAML file; may be empty
  std::optional<double> price_per_gpu_hour;  // in any currency, which costs are in
  EngineConfig engine;
  KvCacheConfig kv_cache;
  KvDtype kv_dtype = KvDtype::Auto;  // the key `dtype` of kv_cache
  SchedulerConfig scheduler;
  SpeculativeConfig speculative;
  CostModelConfig cost_model;
  FleetConfig fleet;
  ClientConfig client;
  SamplingConfig sampling;
  BackendSections backends;  // `cpu`, `cuda`: sections that backends registered
  WorkloadConfig workload;
  SloConfig slo;
  ResultsConfig results;

  // The values above that no key gives, because the policy's engine sets them for the hardware, or
  // the model's name says them.
  std::vector<ServeDefault> serve_defaults;

  // The tree it was parsed from, with variants merged; null for a scenario built in code.
  std::shared_ptr<const ConfigNode> source;
  // Location of a key ("engine.max_num_seqs"), or of the section or file that lacks it.
  SourceLocation location_of(std::string_view key) const;

  // The resolved config: every key that applies, defaults included. It omits keys that a choice
  // (policy, KV backend, arrival process, ...) does not use.
  Json resolved() const;

  // It as JSON text with two-space indent. JSON is YAML. Saved in the current folder, to which
  // paths are relative, it is a scenario that resolves to itself.
  std::string to_json() const;

  // It as YAML for people: a comment gives the reason of each of `serve_defaults`.
  std::string to_yaml() const;

  // The value of a key of resolved(); null: this scenario has no use for the key.
  Json value(std::string_view key) const;

  // This scenario read again with other values; what its choices do not use any more is dropped, as
  // for `--set`. Its name stays. Throws ConfigError.
  Scenario with(std::span<const Setting> settings) const;

  // Whether it names a source of step times, so that it can be simulated.
  bool names_step_times() const { return !hardware.empty() || !cost_model.file.empty(); }
};

// Keys, ranges and meaning of each section. An unknown policy breaks an invariant.
void visit_fields(FieldVisitor& visitor, SamplingConfig& config);
void visit_fields(FieldVisitor& visitor, ResultsConfig& config);
void visit_fields(FieldVisitor& visitor, Scenario& scenario);

// Every key of a scenario file, in the order of the documentation. `description`, `backends` and
// `variants` belong to the file, not to a Scenario, and have no example.
std::vector<DocumentedKey> documented_scenario_keys();

// The keys that are paths, with the values of `scenario`, which outlives the result.
std::vector<PathField> path_fields(Scenario& scenario);

// The scenario as it is valid in any folder: each path is absolute.
Scenario with_absolute_paths(Scenario scenario);

// Checks rules that span several fields. Throws ConfigError for a missing required key,
// contradicting keys, and keys that the chosen policy or backend does not use.
// read_workload_config() checks the workload instead. `source` is the tree the scenario was parsed
// from; it says which keys were given, and where.
void validate_scenario(const Scenario& scenario, const ConfigNode& source);

// Draws or reads the scenario's workload; errors name the file and line. Throws ConfigError.
Workload make_workload(const Scenario& scenario);

// A scenario file after overrides: one entry per variant (one named after the file if it has none).
// A relative model path (a name with a '/' or ending in .json) or trace path is relative to the
// scenario file's folder. A path from `--set` is relative to the current folder, where shells
// complete paths.
struct ScenarioFile {
  std::string path;
  std::string name;  // the file's stem
  std::string description;
  bool has_variants = false;
  std::vector<Scenario> variants;
  ConfigNode sweep;  // input of `metronome sweep`, as in the file; Null: none
};

// A variant's name becomes a folder name: at most this long, without an ending of a result file.
constexpr std::size_t kMaxVariantNameLength = 64;

// The part of `workload` that a command reads.
enum class WorkloadUse : std::uint8_t {
  Requests,       // all of it
  AnswerLengths,  // a simulated server: output_tokens, as clients bring the rest
  Nothing,        // a server that computes
};

// Reads the file and merges the keys under `backends.BACKEND` into the base. Applies `--set`
// assignments to the base; a prefix `variants.NAME.` addresses one variant. Then merges variants
// and validates. A name of built_in_scenarios() that is no file stands for that scenario. `seed`
// overrides every `seed` key. Throws ConfigError at the first mistake.
//
// A variant (or --set) may choose another policy, KV backend, arrival process, length distribution,
// kind of prefix or trace format. Then it drops inherited keys that the choice does not use; the
// same key given with the choice is an error. Choosing a trace drops the inherited description of
// drawn requests, including arrivals. `trace: null` drops the inherited trace. The file's base must
// be valid by itself: an unused key is an error there even if every variant drops it. A --set value
// that every variant overrides or drops is an error too, because it would have no effect. Keys of
// `workload` that are required only for what `use` leaves out may be missing.
ScenarioFile load_scenario(const std::string& path, const std::vector<std::string>& assignments,
                           std::optional<std::uint64_t> seed,
                           std::string_view backend = kBackendNames[0],
                           WorkloadUse use = WorkloadUse::Requests);

// Reads a scenario from a text; messages call it `path`. Relative paths are the current folder's.
ScenarioFile parse_scenario(std::string_view text, const std::string& path,
                            const std::vector<std::string>& assignments);

// A scenario of one variant from its resolved config, with other values. Errors name `where`, or
// `--set KEY` for a setting.
Scenario resolved_scenario(const Json& config, const std::string& where,
                           std::span<const Setting> settings = {});

}  // namespace metronome
