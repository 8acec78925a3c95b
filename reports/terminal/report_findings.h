// SPDX-License-Identifier: Apache-2.0
// Findings in the lines that servers log every few seconds: rates, running and waiting requests,
// and the use of the KV cache.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engines/log/engine_log.h"

namespace metronome {

struct LogFinding {
  std::string_view name;  // "stall": a key of JSON
  std::string text;       // sentences with numbers
  double share = 0;       // of the lines of this kind in which it is seen; 0 to 1
};

// Findings in the lines, in a fixed order:
//   stall    answers hardly go on although nothing waits, and a prompt is booked afterwards
//   full     requests wait while the KV cache is full
//   slots    requests wait while as many run as may
//   queue    requests wait although neither is so
//   graphs   decode steps ran without a CUDA graph
//   ranks    one data-parallel engine has a queue while others are idle
//   slowed   an answer took far longer for a token than others did
// Each has at most one entry for an engine: its longest or worst. Observations whose line
// is 0 are no lines of a file, and texts name their times alone.
// `full_share` is the share of the KV cache in use from which on it counts as full.
std::vector<LogFinding> report_findings(const EngineLog& log, double full_share = 0.95);

// The mean gap between tokens of a request, by answers (answers_text) or line by line: running
// requests by output tokens per second. "mean gap by reports: p50 96.2 ms, longest 10 s (line 5,
// 06:35:10)"; empty: no line has both, or steps say it better.
std::string mean_gap_text(const EngineLog& log);

}  // namespace metronome
