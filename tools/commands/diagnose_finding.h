// SPDX-License-Identifier: Apache-2.0
// Parts of `metronome diagnose` for every kind of run: its options, what it finds, and the search
// for better settings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics/summary.h"
#include "reports/files/result_reader.h"
#include "reports/terminal/cache_pressure.h"
#include "reports/terminal/diagnosis.h"
#include "study/compose/scenario_request.h"
#include "study/rebuilt/report_windows.h"
#include "study/what_if/causes.h"
#include "study/what_if/what_if.h"

namespace metronome {

class JsonText;

struct DiagnoseOptions {
  std::string run;                 // folder or log; empty: the scenario is run first
  std::vector<std::string> notes;  // of a composed scenario
  std::size_t max_entries = 5;
  SloConfig targets;     // in the place of the limits of the run or of --scenario
  std::string hardware;  // to simulate; empty: the run's
  std::string scenario;  // its requests are replayed for a log
  std::string variant;   // of the scenario
  std::string engine;    // of a log; empty: the one whose lines it has
  std::string flags;     // of the engine, in place of those in a log
  std::optional<std::string> iterations;
  std::optional<std::int64_t> run_number;  // of a client's result
  ScenarioRequest described;               // of a log's requests: what the log does not say
  std::string requests;                    // a client's result with the requests of a log
  std::string save;                        // folder that gets the scenario of a log; empty: none
  std::string page;                        // of --html, or of a composed scenario; empty: none
  bool is_composed = false;                // the scenario has no file of the user's
  bool has_no_replay = false;
  bool wants_json = false;
  bool is_quiet = false;  // shows no progress
  int num_threads = 0;    // of the replays; 0: as many as the machine runs at once
};

// The requests of a log, and figures of replays with them.
struct LogWorkloadFacts {
  std::int64_t num_requests = 0;
  std::int64_t num_exact = 0;         // among those that were rebuilt
  std::int64_t num_from_client = 0;   // of a client's result
  std::int64_t num_fitted_steps = 0;  // 0: step times are those of a GPU
  double step_error = 0;              // WhatIf::step_error
  Distribution logged_itl;
  Distribution logged_ttft;  // by the rebuilt arrivals
  Summary as_logged;         // simulated with the log's settings
  std::optional<Summary> with_flags;
  std::optional<MeanRunning> running;  // of a log with reports alone
  std::optional<DrawBand> draws;       // of with_flags, or of as_logged
};

// One run or log: its title, its findings, and remarks on the figures.
struct Finding {
  std::string title;
  std::vector<std::string> facts;
  Diagnosis diagnosis;
  std::vector<std::string> notes;
  Distribution itl;
  std::optional<double> limit_ms;
  std::vector<Cause> causes;
  std::optional<WhatIf> what_if;
  std::optional<CachePressure> pressure;     // of a log
  std::string engine_json;                   // of a log
  std::optional<LogWorkloadFacts> workload;  // of a log whose requests were rebuilt
};

// Searches for better settings, or states why it does not.
// `engine` is the log's.
void replay(const StoredRun& run, const DiagnoseOptions& options, const std::string& engine,
            Finding& finding);

// Runs a scenario, as `name`.
StoredRun run_scenario(const std::string& name, const Scenario& scenario, bool is_quiet = false);

void append_finding(const Finding& finding, JsonText& json);

}  // namespace metronome
