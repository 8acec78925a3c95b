// SPDX-License-Identifier: Apache-2.0
// Scenarios whose text a program wrote.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/scenario/scenario.h"

namespace metronome {

// As parse_scenario(), for a text that the user cannot look up: errors of its values, and later
// ones that use location_of(), name `name` without a line. `text` is well-formed YAML.
ScenarioFile parse_unplaced_scenario(std::string_view text, const std::string& name,
                                     const std::vector<std::string>& assignments);

}  // namespace metronome
