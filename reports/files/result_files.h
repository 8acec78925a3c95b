// The files of a result: what each run writes for people and for tools that read vLLM's serving
// benchmark. Same run, same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/metrics/output_log.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/scenario/scenario.h"
#include "reports/files/noise_bands.h"

namespace metronome {

class FileWriter;
class JsonText;

// Raised when a key changes its meaning or goes away. Its presence marks files as Metronome's.
constexpr int kResultSchema = 1;
constexpr std::string_view kResultSchemaKey = "metronome_schema";

// The backend of a run that a client watched (RunRecord::has_steps() is false).
constexpr std::string_view kHttpBackend = "http";

// Who ran: everything a result says that is not measured.
struct RunInfo {
  std::string label;        // the variant's name
  std::string scenario;     // the scenario's name; empty: unknown, null
  std::string description;  // the scenario's; empty: none, null
  std::string backend = "sim";
  std::string endpoint_type = "metronome";  // vLLM's: "openai", "openai-chat"
  // YYYYmmdd-HHMMSS of the clock's start. A virtual clock starts at the epoch, so that the same
  // scenario gives the same bytes at any time of day.
  std::string date = "19700101-000000";
  std::string model;
  std::string hardware;
  std::string weights;  // what was computed with; empty: nothing was, null
  std::string policy;
  std::uint64_t seed = 0;
  std::string digest;         // empty: a client watched the run, null
  std::string output_digest;  // of all tokens, see OutputLog; empty: none were computed, null
  std::int64_t num_prompts = 0;
  std::optional<double> request_rate;  // 1/s; absent or infinite: "inf", as vLLM writes it
  double burstiness = 1.0;             // vLLM's: 1 = Poisson; infinite = constant, "inf"
  std::optional<std::int64_t> max_concurrency;
  std::int32_t tensor_parallel_size = 1;
  std::int64_t num_blocks = 0;  // of the KV cache
  bool is_calibrated = false;   // step times come from a measured cost model
  SloConfig slo;
  std::string config_json;  // the resolved scenario; empty: null
  // Of a run that a client watched: JSON objects that say which server answered, and how the client
  // itself did. Empty: not there.
  std::string server_json;
  std::string client_json;
};

struct RunResult {
  RunInfo info;
  Summary summary;
  NoiseBands noise;
};

// result.json: vLLM's keys in vLLM's order, then Metronome's. A figure that does not exist (the
// latency of a run without a completed request) is null.
std::string result_json(const RunResult& result);

// summary.json: a list of flat runs, as `vllm bench sweep plot` reads them.
std::string summary_json(std::span<const RunResult> results);

// requests.jsonl: one line per request. `max_tokens` is what it asked for, `output_tokens` what it
// got. `runs` lists [first step, tokens]: the request got one
// token in each of so many consecutive lines of steps.jsonl, counted from 0, whose finished_ns
// is the token's time. Of a run that a client watched `arrival_ns` is when the request was sent,
// `due_ns` when the workload has it arrive, and `token_ns`, in the place of `runs`, lists the time
// of every event with tokens.
void write_requests_jsonl(const RunRecord& record, FileWriter& file);

// steps.jsonl: one line per step; not of a run that a client watched.
void write_steps_jsonl(const RunRecord& record, FileWriter& file);

// trace.json, in Chrome's trace event format, for Perfetto. A process "GPU" has a track with a
// slice for each step, another that marks the longest stalls, and counters; a process "requests"
// has a track for each request, or, with more than kMaxRequestTracks of them, lanes that requests
// use in turn. Arrows lead from a request's prefill chunks to their steps. Of a run whose trace
// would be larger than about `max_bytes` it has the steps around the longest stall; "otherData"
// says which.
constexpr std::size_t kMaxRequestTracks = 200;
constexpr std::size_t kMaxTraceBytes = std::size_t{48} << 20;
void write_trace_json(const RunRecord& record, const RunInfo& info, FileWriter& file,
                      std::size_t max_bytes = kMaxTraceBytes);

// outputs.jsonl: one line per request that got tokens: their ids and, where asked for, log
// probabilities, the sampled token's first.
void write_outputs_jsonl(const OutputLog& outputs, FileWriter& file);

// The keys result.json and summary.json share, into an open object.
void append_flat_fields(const RunResult& result, JsonText& json);

}  // namespace metronome
