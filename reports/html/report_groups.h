// SPDX-License-Identifier: Apache-2.0
// The tables of a report by class and by priority.
#pragma once

#include <span>
#include <string>

namespace metronome {

struct ReportRun;

// A table of the classes of all runs, and one of their priorities; empty if no run has them.
std::string group_tables(std::span<const ReportRun> runs);

}  // namespace metronome
