// Measured steps for `metronome calibrate --from`: of result folders, of a CSV, or of vLLM's log of
// iterations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "sim/cost/hardware.h"
#include "sim/fitted/fitted_fit.h"
#include "sim/replay/replay_model.h"

namespace metronome {

// What is known of a measurement without reading its steps.
struct CalibrationSetup {
  std::string model;                      // empty: as the result folders or the scenario say
  std::string hardware;                   // a name of the catalogue or a YAML file; empty: likewise
  std::int64_t tensor_parallel_size = 0;  // 0: as the result folders say, 1 for others
  // What served a log of iterations: engine, policy, and the requests in the order in which they
  // came. Empty: not known.
  std::string scenario;
  std::vector<std::string> assignments;  // KEY=VALUE, for the scenario
  std::optional<double> until_s;         // of a request log: later instants are left out
};

struct CalibrationSteps {
  ModelConfig model;
  std::string hardware;              // what it was measured on
  std::optional<HardwareSpec> spec;  // absent: the catalogue does not have it
  std::int64_t tensor_parallel_size = 1;
  std::string engine;
  std::vector<std::string> sources;  // folders and files, in the order read
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredGap> gaps;
  // Every step of the runs whose contexts are known, in order, also those that are not fitted to.
  std::vector<RecordedStep> recorded;
  std::vector<std::string> names;  // of the steps: "results/real, step 12", "steps.csv:13"
  // Below which no step can be on `spec`; empty where that is absent.
  std::vector<double> floors_ns;
  std::int64_t num_left_out = 0;     // failed, or with decodes that nobody recorded
  std::vector<bool> is_early;        // among the first kNumEarly steps of a run
  bool knows_contexts = true;        // FittedModel::knows_contexts
  std::vector<std::string> remarks;  // on what could be read, and why no more
};
constexpr std::size_t kNumEarly = 10;

// The columns of a CSV of steps, one pass a row. `pairs` and `kv` are those of
// sim/fitted/step_features.h, `graph` is 1 where decodes were replayed as a graph, `seconds` device
// time.
constexpr const char* kStepColumns = "tokens,pairs,prefill_chunks,decodes,kv,rows,graph,seconds";

// Reads folders with result.json and steps.jsonl (every run in them), CSV files, and logs with
// vLLM's iterations. Of runs with one and with two steps in flight, the former tell the host's gaps
// and the latter step times. Of a log with `setup.scenario` the contexts are rebuilt
// (study/recorded/logged_run.h), up to the first iteration that the scenario's scheduler decides
// otherwise. Of a request log the steps between two known instants are one
// (study/calibrate/calibrate_requests.h). Throws ConfigError: an unreadable or malformed file, runs
// of different models, hardware or tensor parallel size, a CSV without `setup.model`, logs beside
// sources whose contexts are known; UsageError for nothing to fit to.
CalibrationSteps read_calibration_steps(const std::vector<std::string>& paths,
                                        const CalibrationSetup& setup);

}  // namespace metronome
