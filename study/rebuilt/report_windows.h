// SPDX-License-Identifier: Apache-2.0
// The reports that a server logs at intervals, as windows of time: the tokens of each, and the
// requests that were received in it. Step times are fitted to them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/metrics/run_record.h"
#include "engines/log/engine_log.h"
#include "sim/fitted/fitted_model.h"

namespace metronome {

struct ReportWindow {
  TimeNs begin = 0;  // after the first window's beginning
  TimeNs end = 0;
  double prompt_tokens = 0;  // computed
  double output_tokens = 0;
  double mean_running = 0;       // of the requests at both ends
  bool is_busy = false;          // requests run at both ends
  std::int64_t num_running = 0;  // at the end
  std::int64_t num_waiting = 0;
  std::optional<double> cache_usage;  // at the end
  std::optional<double> hit_rate;
  std::int64_t line = 0;  // of the report
  // Requests that the log received in it: the logged ones, or else one for each answered call.
  std::vector<LogArrival> arrivals;
  std::vector<TimeNs> stamps;  // of these; kNoTime: none
};

struct ReportWindows {
  std::vector<ReportWindow> windows;  // of one engine
  TimeNs interval = 0;                // between two reports
  std::int32_t rank = 0;
  std::size_t num_ranks = 1;
  bool has_arrivals = false;  // lines say that requests were received
  bool has_answers = false;   // lines say that calls were answered, and none that they came
};

// The engine with the most tokens. Windows without stamps follow each other every ten seconds.
ReportWindows report_windows(const EngineLog& log);

// Requests that run, on average over windows.
struct MeanRunning {
  double logged = 0;  // at the ends
  double simulated = 0;
};
// Of a run whose time 0 is `start` on the windows' clock.
MeanRunning mean_running(std::span<const ReportWindow> windows, TimeNs start,
                         const RunRecord& record);

// A step takes `step_ns`, and `token_ns` for each token that it computes.
struct WindowFit {
  double step_ns = 0;
  double token_ns = 0;
  double error = 0;  // relative
  std::int64_t num_windows = 0;

  FittedModel model() const;
};

// A window in which requests ran throughout has as many steps as its output tokens by the running
// requests; its steps and tokens take all of its time. Least squares over these windows. The error
// is the mean of windows left out one at a time, and at least what was found on logs of a real
// server. nullopt: there are fewer than four, or they do not tell steps from tokens.
std::optional<WindowFit> fit_windows(std::span<const ReportWindow> windows);

}  // namespace metronome
