// SPDX-License-Identifier: Apache-2.0
// The sides of a goal, what no advice may spend, and whether a replay keeps them.
#pragma once

#include <string>
#include <vector>

#include "study/what_if/what_if.h"

namespace metronome {

// The goals of a search and its guards, with the figures of the run's replay.
std::vector<Side> sides_of(const std::vector<Goal>& goals, const WhatIf& what_if);
// Sets what the trial keeps, how far it is from the limits, and why it does not count.
void judge(Trial& trial, const WhatIf& what_if);
// The figure of a trial that a goal limits.
double side_figure(const Goal& goal, const Trial& trial);
// The words of a figure of that side: "p99 TTFT 1,204 ms".
std::string figure_text(const Goal& goal, double figure);
// The changes in one line: "scheduler.max_num_batched_tokens=512 engine.max_num_seqs=64".
std::string joined(const std::vector<Setting>& changes);
// The figures of the goal's sides: "p99 TTFT 1,204 ms, longest gap 48.2 ms"; "" without a goal.
std::string sides_text(const Trial& trial, const WhatIf& what_if);
// The sides of the goal that a trial breaks; empty: none.
std::vector<Goal> broken_by(const Trial& trial, const WhatIf& what_if);

}  // namespace metronome
