// SPDX-License-Identifier: Apache-2.0
// Scenarios whose text a program wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/scenario/scenario.h"

namespace metronome {

// A scenario that a caller has as a text. Relative paths in it are the current folder's.
struct GivenScenario {
  std::string name;
  std::string yaml;
  bool has_lines = true;  // false: errors leave out the line, which the user cannot look up
};

// As load_scenario() reads a file.
ScenarioFile parse_given_scenario(const GivenScenario& given,
                                  const std::vector<std::string>& assignments,
                                  std::optional<std::uint64_t> seed, std::string_view backend);

// From now on load_scenario() takes the scenario's name for it, before any file; an empty name: for
// none. Not while scenarios are loaded.
void set_given_scenario(GivenScenario scenario);
// Null: there is none of that name.
const GivenScenario* find_given_scenario(std::string_view name);

// As parse_scenario(), for a text that the user cannot look up: errors of its values, and later
// ones that use location_of(), name `name` without a line. `text` is well-formed YAML.
ScenarioFile parse_unplaced_scenario(std::string_view text, const std::string& name,
                                     const std::vector<std::string>& assignments);

}  // namespace metronome
