// SPDX-License-Identifier: Apache-2.0
// Points of a grid that are not valid scenarios: said by `sweep` and `tune`.
#pragma once

#include <string>

#include "study/sweep/sweep_plan.h"

namespace metronome {

// "1 point is not a valid scenario"; empty if all are valid.
std::string refused_text(const SweepPlan& plan);
// On standard error: how many there are, and each with its reason. `severity`: "error", "warning".
void print_refused(const SweepPlan& plan, const char* severity);

}  // namespace metronome
