// SPDX-License-Identifier: Apache-2.0
// The settings that `metronome tune` found, to use them.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "engines/flags/server_flags.h"

namespace metronome {

struct Scenario;

// As flags of engines. `length_note`: why the length of requests is not the scenario's; may be
// empty. `release`: of the policy's own engine, which may be older than its rules; empty: as those.
std::vector<EngineFlags> winner_flags(const Scenario& scenario, const std::string& length_note,
                                      const std::string& release);
void print_flags(std::ostream& out, const std::vector<EngineFlags>& engines);

// The command of its fleet's router; empty: it has no fleet, or the router has no known command.
std::string router_command(const Scenario& scenario);

// As sections of a scenario: of its cost model those that are no defaults. Then the command of its
// fleet's router, where one is known.
void print_yaml(std::ostream& out, const Scenario& winner);

}  // namespace metronome
