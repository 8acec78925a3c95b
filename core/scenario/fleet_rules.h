// SPDX-License-Identifier: Apache-2.0
// Events of the replicas of a fleet, and in front of them: failures and classes of a queue,
// which a scenario lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"

namespace metronome {

struct Scenario;

// A replica that fails at a time, and comes back later with an empty cache.
struct PlannedFailure {
  std::int32_t replica = 0;
  TimeNs at = 0;
  TimeNs until = kNever;
  // Its requests go to other replicas and begin anew; otherwise they fail with it.
  bool retries = true;
};
// In the order of time. Throws ConfigError.
std::vector<PlannedFailure> planned_failures(const Scenario& scenario);

// A class of requests in the gateway's queue.
struct GatewayClass {
  std::string name;
  double share = 1;                       // of what leaves the queue, relative to other classes'
  std::optional<std::int64_t> max_queue;  // of its requests that wait
  std::int64_t importance = 0;
};
// Throws ConfigError.
std::vector<GatewayClass> gateway_classes(const Scenario& scenario);

// Checks these lists and rules between keys of the fleet. Throws ConfigError.
void check_fleet_rules(const Scenario& scenario);
// Checks the fleet's groups, and rules between their keys and others. Requires the workload. Throws
// ConfigError.
void check_fleet_groups(const Scenario& scenario);

}  // namespace metronome
