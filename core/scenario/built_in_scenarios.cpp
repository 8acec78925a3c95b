// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/built_in_scenarios.h"

namespace metronome {

const BuiltInScenario* find_built_in_scenario(std::string_view name) {
  for (const BuiltInScenario& scenario : built_in_scenarios()) {
    if (scenario.name == name) return &scenario;
  }
  return nullptr;
}

}  // namespace metronome
