// SPDX-License-Identifier: Apache-2.0
// The `fleet` section of a scenario: several engines behind a router.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/config/config_choice.h"
#include "core/engine/policy_settings.h"

namespace metronome {

class FieldVisitor;

struct FleetConfig {
  std::int64_t replicas = 0;  // engines; 0: one, without a router
  std::vector<Json> groups;   // as the scenario has them: fleet_groups()
  std::string router = "round_robin";
  PolicySettings settings;  // of all routers
  // Of the router's lots and order; nullopt: the scenario's.
  std::optional<std::int64_t> router_seed;
  bool shuffles_replicas = false;   // the router lists the replicas in an order drawn from the seed
  std::optional<double> report_ms;  // between reports of the replicas; nullopt: the router's own

  bool is_on() const { return replicas > 0; }
};

void visit_fields(FieldVisitor& visitor, FleetConfig& config);

// The keys that a number of replicas, or a router, does not use. Sections are of the whole file.
std::span<const Choice> fleet_choices();

// A router whose name and settings a scenario may have.
struct RouterKeys {
  std::string_view name;
  std::string_view summary;                                 // one line
  void (*visit)(FieldVisitor&, PolicySettings&) = nullptr;  // nullptr: it has no settings
};
// Call it once, before scenarios are read.
void register_router_keys(std::vector<RouterKeys> routers);

}  // namespace metronome
