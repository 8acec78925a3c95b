// `metronome calibrate --from` a request log: when a served engine got requests and gave their
// first and last tokens says how long its steps took, once the scheduler is known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "reports/compare/observed_run.h"
#include "sim/cost/hardware.h"
#include "study/recorded/pinned_run.h"

namespace metronome {

// A request log, and the run of its scenario that keeps to it (study/recorded/pinned_run.h).
struct RequestLogRun {
  ObservedRun log;
  Scenario scenario;
  ModelConfig model;
  HardwareSpec hardware;
  PinnedRun pinned;
  std::optional<double> until_s;  // later instants were left out
};

bool is_request_log(const std::string& path);

// Throws UsageError without a scenario or with one of several variants, ConfigError for a malformed
// log or one of other requests than the scenario's.
RequestLogRun follow_request_log(const std::string& path, const std::string& scenario,
                                 const std::vector<std::string>& assignments,
                                 std::optional<double> until_s);

// Where the simulated steps stop being those that were measured; empty where they never do.
std::string contradiction_remark(const RequestLogRun& run);

struct CorrectionOptions {
  std::string log;
  std::string scenario;                  // with the step times to correct
  std::vector<std::string> assignments;  // KEY=VALUE, for it
  std::optional<double> until_s;         // of the log, that is fitted to; the rest is a check
  std::string out;                       // empty: nothing is written
};

// Fits a correction (sim/corrected/corrected_fit.h), prints it and its errors, also on what it was
// not fitted to, and writes the file. Throws what follow_request_log() does; ConfigError where too
// little is known, and where a corrected step is faster than the hardware can be: then nothing is
// written.
void calibrate_from_requests(const CorrectionOptions& options);

}  // namespace metronome
