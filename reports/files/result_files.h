// SPDX-License-Identifier: Apache-2.0
// The result files that each run writes, for people and for tools that read the output of vLLM's
// serving benchmark. The same run gives the same bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/metrics/figures.h"
#include "core/metrics/output_log.h"
#include "core/metrics/run_record.h"
#include "core/metrics/slo_config.h"
#include "core/metrics/summary.h"
#include "core/run/time_accuracy.h"
#include "reports/files/figure_bands.h"

namespace metronome {

class FileWriter;
class JsonText;

// Incremented when a key changes its meaning or is removed. The key marks files as Metronome's.
constexpr int kResultSchema = 1;
constexpr std::string_view kResultSchemaKey = "metronome_schema";

// The backend of a run measured by a client (RunRecord::has_steps() is false).
constexpr std::string_view kHttpBackend = "http";

// Identifies a run: everything in a result that is not measured.
struct RunInfo {
  std::string label;        // the variant's name
  std::string scenario;     // the scenario's name; empty: unknown, null
  std::string description;  // the scenario's; empty: none, null
  std::string backend = "sim";
  std::string endpoint_type = "metronome";  // vLLM's: "openai", "openai-chat"
  // YYYYmmdd-HHMMSS of the clock's start. A virtual clock starts at the epoch, so that a scenario
  // always gives the same bytes.
  std::string date = "19700101-000000";
  std::string model;
  std::string hardware;
  std::string weights;  // the computed weights; empty: nothing was computed, null
  std::string policy;
  std::optional<std::uint64_t> seed;  // absent: unknown, null
  std::string digest;                 // empty: run measured by a client, null
  std::string output_digest;  // of all tokens, see OutputLog; empty: no tokens were computed, null
  std::int64_t num_prompts = 0;
  std::optional<double> request_rate;  // 1/s; absent or infinite: "inf", as vLLM writes it
  double burstiness = 1.0;             // vLLM's: 1 = Poisson; infinite = constant, "inf"
  std::optional<std::int64_t> max_concurrency;
  std::int32_t tensor_parallel_size = 1;
  std::int64_t num_gpus = 0;  // of all engines of a fleet; 0: there is one engine
  std::optional<double> price_per_gpu_hour;
  std::int64_t num_blocks = 0;  // of the KV cache
  bool keeps_steps = true;      // otherwise percentiles are those of histograms
  bool is_calibrated = false;   // step times come from a measured cost model
  SloConfig slo;
  Json config;  // the resolved scenario; null: unknown
  // Why it has values that no key gave: Scenario::serve_defaults, reasons by key. Null: left out.
  Json config_reasons;
  // For a run measured by a client: objects about the server and about the client itself. Null:
  // left out.
  Json server;
  Json client;
  // Of simulated times. nullopt: they are measured, or were never compared.
  std::optional<TimeAccuracy> accuracy;

  RunFacts facts() const;
};

// The bytes of each file beside result.json that has no mark, by name. Absent: not written yet, or
// by a version without this list.
using FileSizes = std::optional<std::map<std::string, std::int64_t>>;

struct RunResult {
  RunInfo info;
  Summary summary;
  FigureBands bands;
  FileSizes files;
};

// The content of a result.json: of a run of this program, of a file, or of a trial of `tune`.
struct ResultContent {
  RunInfo info;
  FigureValues figures;
  FigureBands bands;
  std::optional<Stall> longest_stall;  // absent: unknown, left out
  Json classes, priorities;            // lists of groups_json(); null: left out
  Json replicas;                       // list of replicas_json(); null: left out
  Json fleet_events;                   // list of fleet_events_json(); null: left out
  FileSizes files;

  ResultContent() = default;
  explicit ResultContent(const RunResult& result);
};

// The figures of groups of requests, an object each; null if there are none.
Json groups_json(const std::vector<GroupSummary>& groups);

// The figures of the engines of a fleet, an object each; null if there is one engine.
Json replicas_json(const std::vector<ReplicaSummary>& replicas);

// Events of the replicas, an object each; null if nothing did.
Json fleet_events_json(const std::vector<FleetEvent>& events);

// result.json: vLLM's keys in vLLM's order, then Metronome's. An undefined figure (such as the
// latency of a run without a completed request) is null. Ends with its content id (content_id.h).
std::string result_json(const RunResult& result);

// A definition of a figure, in words.
struct Formula {
  std::string_view name;
  std::string_view text;
};
std::vector<Formula> formulas_of(const ResultContent& content);

// Appends the keys of result.json to an open object, without its formulas and its id.
void append_result_fields(const ResultContent& content, JsonText& json);

// summary.json: a list of flat runs, in the format of `vllm bench sweep plot`.
std::string summary_json(std::span<const RunResult> results);

// requests.jsonl: one line per request. `max_tokens` is the requested number of output tokens,
// `output_tokens` the received number. `runs` lists [first step, tokens]: the request received one
// token in each of that many consecutive lines of steps.jsonl, counted from 0. The token's time is
// finished_ns of that line. For a run measured by a client, `arrival_ns` is when the request was
// sent and `due_ns` when the workload has it arrive. `token_ns` replaces `runs` and lists the time
// of every event with tokens.
void write_requests_jsonl(const RunRecord& record, FileWriter& file);

// steps.jsonl: one line per step; not written for a run measured by a client.
void write_steps_jsonl(const RunRecord& record, FileWriter& file);

// trace.json, in Chrome's trace event format, for Perfetto.
//   - Process "GPU" has a track with a slice for each step, a track that marks the longest stalls,
//     and counters.
//   - Process "requests" has a track for each request. With more than kMaxRequestTracks requests it
//     has lanes that requests use in turn.
//   - Arrows lead from a request's prefill chunks to their steps.
// If the trace would exceed about `max_bytes`, it only has the steps around the longest stall,
// which "otherData" states.
constexpr std::size_t kMaxRequestTracks = 200;
constexpr std::size_t kMaxTraceBytes = std::size_t{48} << 20;
void write_trace_json(const RunRecord& record, const RunInfo& info, FileWriter& file,
                      std::size_t max_bytes = kMaxTraceBytes);

// outputs.jsonl: one line per request with tokens: their ids and, if requested, log probabilities,
// the sampled token's first.
void write_outputs_jsonl(const OutputLog& outputs, FileWriter& file);

// Appends the keys shared by result.json and summary.json to an open object.
void append_flat_fields(const ResultContent& content, JsonText& json);

}  // namespace metronome
