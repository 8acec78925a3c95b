// SPDX-License-Identifier: Apache-2.0
// The options --replicas and --router: short for keys of the scenario's fleet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/commands/command_options.h"

namespace metronome {

struct FleetOptions {
  std::optional<std::int64_t> replicas;
  std::optional<std::string> router;
  std::optional<std::string> steps_of;
};

void add_fleet_options(FleetOptions& fleet, OptionList& options);
// For commands that write results of runs.
void add_steps_option(FleetOptions& fleet, OptionList& options);

// Appends what was given as assignments of --set.
void append_assignments(const FleetOptions& fleet, std::vector<std::string>& assignments);

}  // namespace metronome
