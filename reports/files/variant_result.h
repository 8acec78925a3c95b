// SPDX-License-Identifier: Apache-2.0
// The result of a variant's run, and its files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/metrics/output_log.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/run/run.h"
#include "core/workload/workload.h"
#include "reports/files/result_files.h"
#include "reports/files/result_folder.h"

namespace metronome {

struct PreparedVariant;
struct ResultsConfig;
struct Scenario;

// The parts of a result that are not figures. `date` is used if the backend measures.
RunInfo run_info(const Backend& backend, const PreparedVariant& variant, const std::string& date);
Summary summary_of(const PreparedVariant& variant, const RunRecord& record);

// The parts of a result that depend only on the scenario: label, seed, workload, SLO and the
// resolved configuration.
RunInfo scenario_info(const Scenario& scenario, const Workload& workload);

class RequestsStream;
class StepsStream;

// One replica of a fleet, recorded as if it were the only engine. Its requests are numbered in the
// order in which it got them.
struct ReplicaOutcome {
  std::int32_t replica = 0;
  RunResult result;
  RunRecord record;
};

struct VariantOutcome {
  RunResult result;
  RunRecord record;         // without requests and steps if the run kept no steps
  bool keeps_steps = true;  // of all engines
  std::vector<ReplicaOutcome> replicas;  // otherwise: those whose steps were asked for
  OutputLog outputs;
  // "5 of 5 requests can never fit; first: request 0: needs ...", one per reason.
  std::vector<std::string> warnings;
  double elapsed_ms = 0;  // wall time of the engine's loop, without writing
};

// The most that `metronome run` writes of a file that nobody asked for.
constexpr std::int64_t kMaxUnaskedBytes = 64'000'000;

// Opens the stream that takes a run's steps for write_variant(), with the same arguments. Null if
// `wanted` has no steps.jsonl, or if the system allows no further thread.
std::unique_ptr<StepsStream> open_steps_stream(const ResultsConfig& wanted, ResultFolder& folder,
                                               const std::string& subfolder,
                                               std::int64_t max_unasked_bytes = INT64_MAX);

// Opens the stream that takes a run's requests where it keeps no steps, with the same arguments.
// Null if `wanted` has no requests.jsonl.
std::unique_ptr<RequestsStream> open_requests_stream(const ResultsConfig& wanted,
                                                     const Workload& workload,
                                                     ResultFolder& folder,
                                                     const std::string& subfolder,
                                                     std::int64_t max_unasked_bytes = INT64_MAX);

// Writes the files of a run into `subfolder` of `folder` (empty: into the folder itself). Leaves
// out files that `wanted` does not ask for and that are larger than this; returns them, each with
// the key that asks for it: "steps.jsonl (results.steps)". Sets outcome.result.files, vllm.json
// with them if it has been written. `steps` has taken the run's steps for steps.jsonl, which it
// writes up to the same limit; null: nothing has. `requests` likewise. Replicas that were asked for
// have folders of their own: "SUBFOLDER.replica_5", or "replica_5".
struct RunStreams {
  StepsStream* steps = nullptr;
  RequestsStream* requests = nullptr;
};
std::vector<std::string> write_variant(VariantOutcome& outcome, const ResultsConfig& wanted,
                                       ResultFolder& folder, const std::string& subfolder,
                                       std::int64_t max_unasked_bytes = INT64_MAX,
                                       const RunStreams& streams = {});
// Writes those that its scenario asks for, whatever their size, into the folder itself.
void write_variant(VariantOutcome& outcome, const PreparedVariant& variant, ResultFolder& folder,
                   RequestsStream* requests = nullptr);

}  // namespace metronome
