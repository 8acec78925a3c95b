// SPDX-License-Identifier: Apache-2.0
// The replicas of a scenario's fleet, as scenarios of one engine each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace metronome {

// Replicas that are alike.
struct FleetGroup {
  std::int64_t num_replicas = 0;
  std::vector<std::string> changed;  // keys that differ from the scenario's: "hardware=h200"
  Scenario scenario;                 // without a fleet
};

// In the order of their numbers: those of FleetConfig::groups first, then those that are as the
// scenario says. Requires a fleet. Throws ConfigError.
std::vector<FleetGroup> fleet_groups(const Scenario& scenario);

// Whether any replica verifies drafts.
bool any_has_drafts(const std::vector<FleetGroup>& groups);

// The GPUs of all engines of a scenario, and what an hour of them costs; nullopt: the price of some
// is not known.
struct ScenarioGpus {
  std::int64_t count = 0;
  std::optional<double> price_per_hour;
};
ScenarioGpus gpus_of(const Scenario& scenario);

}  // namespace metronome
