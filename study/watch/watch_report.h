// SPDX-License-Identifier: Apache-2.0
// One look at a running server: load, goals, causes and advice, as text, as a line, as
// JSON and as metrics.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engines/log/engine_log.h"
#include "study/watch/load_window.h"
#include "study/watch/log_tail.h"
#include "study/watch/watched_goals.h"

namespace metronome {

class JsonText;

// A change of flags that keeps the goals, from replays of the log's requests.
struct RestartAdvice {
  std::string conclusion;          // the change, and what it is known to: a sentence
  std::string flags;               // "--max-num-batched-tokens 256"; empty: no change is advised
  std::string price;               // what it costs on every side
  std::string command;             // that starts the server so; empty: none
  std::vector<std::string> notes;  // one sentence each
};

struct WatchReport {
  std::string server;    // its URL
  std::string clock;     // time of day of the look
  std::string engine;    // "vLLM"; empty: not known
  std::string model;     // as the server calls it; empty: not known
  std::optional<std::int64_t> block_size, num_blocks;
  std::optional<LoadWindow> window;  // nullopt: the metrics could not be read twice
  std::optional<LogFigures> log;     // nullopt: nothing was logged meanwhile
  std::vector<WatchedGoal> goals;
  bool has_usual_goals = false;  // nobody gave some
  std::vector<Cause> causes;
  std::optional<RestartAdvice> advice;
  std::string finding_json;        // of the replays: as `diagnose --json`; empty: none
  std::vector<std::string> notes;  // what is not known, and why; one sentence each
};

// At the width of a terminal. Ends with a line break.
std::string report_text(const WatchReport& report, std::size_t columns);
// One line for a log, without an end.
std::string report_line(const WatchReport& report);
void append_report(const WatchReport& report, JsonText& json);

// For the textfile collector of Prometheus' node exporter. `unix_time` is that of the look.
std::string report_metrics(const WatchReport& report, double unix_time);
// The names of these metrics.
std::vector<std::string_view> report_metric_names();

}  // namespace metronome
