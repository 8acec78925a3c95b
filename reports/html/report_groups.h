// SPDX-License-Identifier: Apache-2.0
// The tables of a report by class and by priority, and of the parts of first tokens.
#pragma once

#include <span>
#include <string>

namespace metronome {

struct ReportRun;

// The parts of the time to the first token, of all requests and of the latest, of each run that has
// its steps; empty: none has.
std::string first_token_table(std::span<const ReportRun> runs);

// A table of the classes of all runs, and one of their priorities; empty if no run has them.
std::string group_tables(std::span<const ReportRun> runs);

}  // namespace metronome
