// SPDX-License-Identifier: Apache-2.0
// A scenario's run that follows a request log.
#pragma once

#include <cstdint>
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

// Reads a request log, or a client's result with the start, first and last token of each request;
// `run_number` is that of a result with several runs. Throws UsageError without a scenario or for a
// scenario with several variants. Throws ConfigError for a file that is malformed, lacks these
// times, or has other requests than the scenario.
RequestLogRun follow_request_log(const std::string& path, std::optional<std::int64_t> run_number,
                                 const std::string& scenario,
                                 const std::vector<std::string>& assignments,
                                 std::optional<double> until_s);

// Names where the simulated steps begin to differ from the measured ones; empty if they never do.
std::string contradiction_remark(const RequestLogRun& run);

}  // namespace metronome
