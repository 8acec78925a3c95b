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

// The order in which requests leave the gateway's queue.
enum class GatewayOrder : std::uint8_t { Fcfs, Priority, Fair };

// A queue in front of the router.
struct GatewayConfig {
  // Requests that the replicas have, for each that takes requests; others wait. nullopt: no limit.
  std::optional<std::int64_t> max_in_flight;
  std::optional<std::int64_t> max_queue;  // requests that wait; nullopt: no limit
  std::optional<double> max_wait_ms;
  GatewayOrder order = GatewayOrder::Fcfs;
  std::vector<Json> classes;  // as the scenario has them: gateway_classes()

  bool is_on() const { return max_in_flight.has_value(); }
};

// A rule that adds and removes replicas.
struct ScalingConfig {
  std::int64_t min_replicas = 0;  // 0: it does neither
  double interval_s = 15;
  double start_up_s = 60;
  std::int64_t step = 1;
  // Adds where one of these holds; nullopt: it is not looked at.
  std::optional<double> queue_above;
  std::optional<double> kv_use_above;
  std::optional<double> slo_attainment_below;
  // Removes where all of these hold, for so long.
  std::optional<double> queue_below;
  std::optional<double> kv_use_below;
  double hold_s = 300;

  bool is_on() const { return min_replicas > 0; }
  bool adds() const { return queue_above || kv_use_above || slo_attainment_below; }
};

struct FleetConfig {
  std::int64_t replicas = 0;  // engines; 0: one, without a router
  std::vector<Json> groups;   // as the scenario has them: fleet_groups()
  std::string router = "round_robin";
  PolicySettings settings;  // of all routers
  // Of the router's lots and order; nullopt: the scenario's.
  std::optional<std::int64_t> router_seed;
  bool shuffles_replicas = false;   // the router lists the replicas in an order drawn from the seed
  std::optional<double> report_ms;  // between reports of the replicas; nullopt: the router's own
  GatewayConfig gateway;
  ScalingConfig scaling;
  std::vector<Json> failures;  // as the scenario has them: planned_failures()
  // Keeps the steps of all replicas to the end of the run; nullopt: of runs with few requests.
  std::optional<bool> keeps_steps;
  std::vector<std::int64_t> steps_of;  // without those of all: replicas whose steps are kept

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
