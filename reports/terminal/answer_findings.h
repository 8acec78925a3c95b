// SPDX-License-Identifier: Apache-2.0
// Findings in the timings that a server prints as each answer ends.
#pragma once

#include <string>
#include <vector>

#include "engines/log/engine_log.h"
#include "reports/terminal/report_findings.h"

namespace metronome {

// "tokens of 12 answers: p50 4.8 ms, slowest 98.7 ms (task 19, line 2449); prompts: 572.7 tok/s in
// the median"; empty: the log has no such timings.
std::string answers_text(const EngineLog& log);

// Appends the finding `slowed`: an answer took far longer for a token than others did. Where lines
// have times, it says how long prompts of others were computed meanwhile.
void append_slowed_answer(const EngineLog& log, std::vector<LogFinding>& findings);

}  // namespace metronome
