// SPDX-License-Identifier: Apache-2.0
// The log of a server as a scenario: its requests, its settings, and step times fitted to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engines/log/engine_log.h"
#include "reports/measured/measured_run.h"
#include "study/calibrate/calibrate_fit.h"
#include "study/rebuilt/rebuilt_requests.h"
#include "study/rebuilt/report_windows.h"

namespace metronome {

struct LogScenarioOptions {
  std::string model;  // in place of the log's, of which a name may be all that is known
  // The GPU: its memory, and its step times where the log has too few. Empty: not known.
  std::string gpu;
  bool simulates_gpu = false;  // its step times, also where the log has enough
  std::optional<std::int64_t> tensor_parallel_size;
  std::string quantization;
  // A client's result with the requests of the log, or of a part of it; nullptr: none. They replace
  // those that were rebuilt.
  const MeasuredRun* client = nullptr;
  std::uint64_t seed = 1;  // of what is drawn where the log has reports alone
};

struct LogScenario {
  // Why there is none, as a sentence; the files are then empty. Empty: there is one.
  std::string obstacle;
  RebuiltLog rebuilt;
  std::optional<Calibration> fit;  // nullopt: the GPU's step times, or those of window_fit
  // Of a log with reports alone: their windows, on whose clock the first request arrives at
  // `start`, and step times by them.
  std::vector<ReportWindow> windows;
  TimeNs start = 0;
  std::optional<WindowFit> window_fit;
  bool is_drawn = false;           // other draws have other requests, by LogScenarioOptions::seed
  std::string yaml;                // names the other two files, which are beside it
  std::string requests;            // of kLogRequestsFile
  std::string steps;               // of kLogStepsFile; empty: none
  std::string summary;             // "66 requests rebuilt from the log, 50 of them exactly"
  std::vector<std::string> notes;  // what was drawn, or taken instead of what the log lacks
  std::size_t num_requests = 0;    // of the scenario
  std::size_t num_from_client = 0;
  std::vector<TimeNs> client_ttft_ns;  // by arrival; kNoTime: the client's result lacks it
};

// The relative error of steps with prompts: the mean of held-out ones. 0: step times are a GPU's.
double step_error(const LogScenario& made);

constexpr const char* kLogScenarioFile = "scenario.yaml";
constexpr const char* kLogRequestsFile = "requests.csv";
constexpr const char* kLogStepsFile = "steps.json";

// Whether the log has what requests are rebuilt from: each step with its content and time.
bool has_requests(const EngineLog& log);

// Whether it has at least reports or batches, from which requests may be drawn.
bool may_have_requests(const EngineLog& log);

// Requires may_have_requests(). There is an obstacle where the log has too few steps for a fit, and
// no GPU is given. Throws ConfigError and UsageError, in the name of `metronome diagnose`'s
// options.
LogScenario make_log_scenario(const EngineLog& log, const LogScenarioOptions& options);

// Gives requests the time that the server takes before its engine sees them.
void set_front_end(double ms, LogScenario& made);

// Writes the files into a folder, which exists. Returns the path of the scenario.
std::string write_log_scenario(const LogScenario& made, const std::string& folder);

}  // namespace metronome
