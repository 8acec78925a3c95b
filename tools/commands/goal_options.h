// SPDX-License-Identifier: Apache-2.0
// The sides of a goal as options: `diagnose`, `sweep` and `tune` have the same ones.
#pragma once

#include <string>
#include <vector>

#include "core/metrics/slo_config.h"
#include "tools/commands/command_options.h"

namespace metronome {

// Adds --target-itl and the others. `goals` outlives the parsing, and gets those that are given.
void add_goal_options(SloConfig& goals, OptionList& list);

// The given ones as values for --set: "slo.ttft_ms=400.0".
std::vector<std::string> goal_assignments(const SloConfig& goals);

}  // namespace metronome
