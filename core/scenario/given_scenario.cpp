// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/scenario/unplaced_scenario.h"

namespace metronome {
namespace {

GivenScenario& given_scenario() {
  static GivenScenario given;
  return given;
}

}  // namespace

void set_given_scenario(GivenScenario scenario) { given_scenario() = std::move(scenario); }

const GivenScenario* find_given_scenario(std::string_view name) {
  const GivenScenario& given = given_scenario();
  return !name.empty() && given.name == name ? &given : nullptr;
}

}  // namespace metronome
