// SPDX-License-Identifier: Apache-2.0
// Measured steps for `metronome calibrate --from`: from result folders, a CSV, or vLLM's log of
// iterations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "engines/vllm/iteration_log.h"
#include "sim/fitted/fitted_fit.h"
#include "sim/replay/replay_model.h"

namespace metronome {

// Facts about a measurement that its steps do not contain.
struct CalibrationSetup {
  std::string model;                      // empty: from the result folders or the scenario
  std::string hardware;                   // a catalogue name or a YAML file; empty: likewise
  std::int64_t tensor_parallel_size = 0;  // 0: from the result folders, 1 for other sources
  // The scenario that produced a log of iterations: engine, policy, and the requests in their order
  // of arrival. Empty: unknown.
  std::string scenario;
  std::vector<std::string> assignments;      // KEY=VALUE, for the scenario
  std::optional<double> until_s;             // of a request log: later instants are ignored
  std::optional<std::int64_t> run_number;    // of a client's result with several runs
  std::optional<IterationRange> iterations;  // of a log; nullopt: all, or those that fit `scenario`
  bool allows_differences = false;           // of the measured model from the named one
};

struct CalibrationSteps {
  ModelConfig model;
  std::string hardware;              // of the measurement
  std::optional<HardwareSpec> spec;  // absent: not in the catalogue
  std::int64_t tensor_parallel_size = 1;
  std::string engine;
  std::vector<std::string> sources;  // folders and files, in the order read
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredGap> gaps;
  // Every step of the runs with known contexts, in order, including steps that are not fitted to.
  std::vector<RecordedStep> recorded;
  std::vector<std::string> names;  // of the steps: "results/real, step 12", "steps.csv:13"
  // The minimum time of each step on `spec`; empty if `spec` is absent.
  std::vector<double> floors_ns;
  std::int64_t num_left_out = 0;     // failed steps, and steps with unrecorded decodes
  std::vector<bool> is_early;        // among the first kNumEarly steps of a run
  bool knows_contexts = true;        // FittedModel::knows_contexts
  std::vector<std::string> remarks;  // on what could be read, and why not more
};
constexpr std::size_t kNumEarly = 10;

// The columns of a CSV of steps, one pass per row. `pairs` and `kv` are those of
// sim/fitted/step_features.h. `graph` is 1 if the decodes ran as a graph. `seconds` is device time.
constexpr const char* kStepColumns = "tokens,pairs,prefill_chunks,decodes,kv,rows,graph,seconds";

// Reads folders with result.json and steps.jsonl (every run in them), CSV files, and logs with
// vLLM's iterations.
//   - If there are runs with one and with two steps in flight, the host gaps come from the former
//     and the step times from the latter.
//   - For a log with `setup.scenario` the contexts are rebuilt (study/recorded/logged_run.h), up to
//     the first iteration where the scenario's scheduler decides differently.
//   - In a request log the steps between two known instants count as one
//     (study/calibrate/calibrate_requests.h).
// Throws ConfigError for an unreadable or malformed file, and for runs of different models,
// hardware or tensor parallel size, or of another model than the setup names. Also for a CSV
// without `setup.model`, and for logs beside sources with known contexts. Throws UsageError if
// there are no steps to fit to.
CalibrationSteps read_calibration_steps(const std::vector<std::string>& paths,
                                        const CalibrationSetup& setup);

}  // namespace metronome
