// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/fleet_config.h"

#include <fmt/core.h>
#include <string>
#include <utility>

#include "core/config/config_limits.h"
#include "core/config/config_reader.h"

namespace metronome {
namespace {

constexpr std::int64_t kMaxReplicas = 100'000;

std::vector<RouterKeys>& known_routers() {
  static std::vector<RouterKeys> routers = {{"round_robin", "one replica after the other"}};
  return routers;
}

Unused unused_by_replicas(std::string_view replicas) {
  if (replicas != "0") return {};
  static constexpr const char* kComplaint =
      "there is one engine and no router; allowed: fleet.replicas of at least 1, or omit the key";
  Unused unused;
  for (const std::string_view key :
       {"router", "groups", "router_seed", "shuffle_replicas", "report_ms"}) {
    unused.keys.push_back({key, kComplaint});
  }
  for (const RouterKeys& router : known_routers()) {
    if (router.visit != nullptr) unused.keys.push_back({router.name, kComplaint});
  }
  return unused;
}

Unused unused_by_router(std::string_view name) {
  Unused unused;
  for (const RouterKeys& router : known_routers()) {
    if (router.visit == nullptr || router.name == name) continue;
    unused.keys.push_back({router.name, fmt::format("these are settings of another router than {}; "
                                                    "allowed: fleet.router {}, or omit the key",
                                                    name, router.name)});
  }
  return unused;
}

}  // namespace

void register_router_keys(std::vector<RouterKeys> routers) { known_routers() = std::move(routers); }

void visit_fields(FieldVisitor& visitor, FleetConfig& config) {
  visitor.integer("replicas", config.replicas, 0, kMaxReplicas,
                  "for simulation: engines that share the requests; 0: one, without a router");
  std::vector<std::string_view> names;
  for (const RouterKeys& router : known_routers()) names.push_back(router.name);
  choose_name(visitor, "router", config.router, names,
              "who gives each request to a replica (metronome list routers)");
  visitor.mappings("groups", config.groups,
                   "the first replicas, where they differ: each with a count, and hardware, "
                   "price_per_gpu_hour, quantization, or keys of engine, kv_cache, scheduler, "
                   "speculative, cost_model; the others are as the scenario says");
  visitor.optional_integer("router_seed", config.router_seed, 0, kMaxSeed,
                           "of the router's lots, and of shuffle_replicas; null: the scenario's");
  visitor.boolean("shuffle_replicas", config.shuffles_replicas,
                  "the router lists the replicas in an order that is drawn, which decides ties, as "
                  "programs do that keep them in a hash map");
  visitor.optional_number("report_ms", config.report_ms, 0.001, kHourMs,
                          "between reports of the replicas to a router that asks for them, "
                          "milliseconds; null: as the router's program does");
  for (const RouterKeys& router : known_routers()) {
    if (router.visit == nullptr) continue;
    const std::string name(router.name);
    if (!visitor.open_section(name.c_str(), std::string(router.summary).c_str())) continue;
    router.visit(visitor, config.settings);
    visitor.close_section();
  }
}

std::span<const Choice> fleet_choices() {
  static const std::vector<Choice> choices = {{"fleet", "replicas", unused_by_replicas},
                                              {"fleet", "router", unused_by_router}};
  return choices;
}

}  // namespace metronome
