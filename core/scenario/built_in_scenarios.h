// SPDX-License-Identifier: Apache-2.0
// The scenarios of the folder `scenarios`, but for those that read files: they travel inside the
// program.
#pragma once

#include <span>
#include <string_view>

namespace metronome {

struct BuiltInScenario {
  std::string_view name;  // "quickstart", "qwen3-4b/baseline"
  std::string_view yaml;
};

// By name, ascending. The build writes them (CMakeLists.txt).
std::span<const BuiltInScenario> built_in_scenarios();

// Null: there is none of that name.
const BuiltInScenario* find_built_in_scenario(std::string_view name);

}  // namespace metronome
