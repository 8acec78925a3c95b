// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --from` with a request log. The log holds when a served engine received
// requests and returned their first and last tokens. With a known scheduler, this yields the step
// times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "reports/compare/observed_run.h"
#include "study/recorded/pinned_run.h"

namespace metronome {

// A request log, and its scenario's run pinned to the log (study/recorded/pinned_run.h).
struct RequestLogRun {
  ObservedRun log;
  Scenario scenario;
  ModelConfig model;
  HardwareSpec hardware;
  PinnedRun pinned;
  std::optional<double> until_s;  // later instants were ignored
  // Without cost_model.cold_start_ms too few steps fitted the log; with this one they do.
  std::optional<double> found_cold_start_ms;
};

bool is_request_log(const std::string& path);

// Throws UsageError without a scenario or for a scenario with several variants. Throws ConfigError
// for a log that is malformed or has other requests than the scenario.
RequestLogRun follow_request_log(const std::string& path, const std::string& scenario,
                                 const std::vector<std::string>& assignments,
                                 std::optional<double> until_s);

// Names where the simulated steps begin to differ from the measured ones; empty if they never do.
std::string contradiction_remark(const RequestLogRun& run);

struct CorrectionOptions {
  std::string log;
  std::string scenario;                  // with the step times to correct
  std::vector<std::string> assignments;  // KEY=VALUE, for it
  std::optional<double> until_s;         // the fit uses the log up to here; the rest is a check
  std::string out;                       // empty: no file is written
};

// Fits a correction (sim/corrected/corrected_fit.h) and writes the file. Prints the correction and
// its errors, including those on data outside the fit. Throws as follow_request_log() does. Throws
// ConfigError if the log has too little information, or if a corrected step is faster than the
// hardware allows. After an error no file is written.
void calibrate_from_requests(const CorrectionOptions& options);

}  // namespace metronome
