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
       {"router", "groups", "router_seed", "shuffle_replicas", "report_ms", "gateway", "scaling",
        "failures", "keep_steps", "steps_of"}) {
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

constexpr std::int64_t kMaxQueued = 1'000'000'000;
constexpr double kMaxSeconds = 1e9;

void visit_gateway(FieldVisitor& visitor, GatewayConfig& config) {
  if (!visitor.open_section("gateway", "a queue in front of the router")) return;
  visitor.optional_integer("max_in_flight", config.max_in_flight, 1, kMaxQueued,
                           "requests that the replicas have at once, for each that takes "
                           "requests; others wait; null: no limit");
  visitor.optional_integer("max_queue", config.max_queue, 0, kMaxQueued,
                           "requests that wait; one more is refused; null: no limit");
  visitor.optional_number("max_wait_ms", config.max_wait_ms, 0, 1e9,
                          "a request that waited so long is refused; null: no limit");
  visitor.choice("order", config.order, {"fcfs", "priority", "fair"},
                 "who leaves the queue first: the oldest, the one of lowest priority number, or "
                 "classes in turn by their shares");
  visitor.mappings("classes", config.classes,
                   "classes that differ: each with class (its name), share (of order fair; 1), "
                   "max_queue (of its requests), importance (of a full queue, the newest request "
                   "of the least important class is refused; 0)");
  visitor.close_section();
}

void visit_scaling(FieldVisitor& visitor, ScalingConfig& config) {
  if (!visitor.open_section("scaling", "a rule that adds and removes replicas")) return;
  visitor.integer("min_replicas", config.min_replicas, 0, kMaxReplicas,
                  "the least number, which the run begins with; the most is fleet.replicas; 0: the "
                  "number is fixed");
  visitor.number("interval_s", config.interval_s, 0.001, kMaxSeconds,
                 "between two looks at the replicas, seconds");
  visitor.number("start_up_s", config.start_up_s, 0, kMaxSeconds,
                 "until an added replica takes requests, seconds");
  visitor.integer("step", config.step, 1, kMaxReplicas, "replicas that are added at once");
  visitor.optional_number("queue_above", config.queue_above, 0, 1e9,
                          "adds where more requests wait for each replica, in the gateway and in "
                          "engines; null: not looked at");
  visitor.optional_number("kv_use_above", config.kv_use_above, 0, 1,
                          "adds where the mean KV use of replicas is higher, 0 to 1");
  visitor.optional_number("slo_attainment_below", config.slo_attainment_below, 0, 1,
                          "adds where a smaller share of the requests that ended since the last "
                          "look was good by slo.ttft_ms, tpot_ms and e2el_ms");
  visitor.optional_number("queue_below", config.queue_below, 0, 1e9,
                          "removes a replica where fewer requests wait for each");
  visitor.optional_number("kv_use_below", config.kv_use_below, 0, 1,
                          "removes a replica where the mean KV use is lower; beside queue_below: "
                          "where both hold");
  visitor.number("hold_s", config.hold_s, 0, kMaxSeconds,
                 "so long they must hold before a replica is removed, seconds");
  visitor.close_section();
}

Unused unused_by_scaling(std::string_view min_replicas) {
  if (min_replicas != "0") return {};
  Unused unused;
  for (const std::string_view key :
       {"scaling.interval_s", "scaling.start_up_s", "scaling.step", "scaling.queue_above",
        "scaling.kv_use_above", "scaling.slo_attainment_below", "scaling.queue_below",
        "scaling.kv_use_below", "scaling.hold_s"}) {
    unused.keys.push_back({key,
                           "the number of replicas is fixed; allowed: fleet.scaling.min_replicas "
                           "of at least 1, or omit the key"});
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
  visit_gateway(visitor, config.gateway);
  visit_scaling(visitor, config.scaling);
  visitor.mappings("failures", config.failures,
                   "replicas that fail: each with replica, at_s, down_s (null: for good) and "
                   "requests: retried (the default: by other replicas) or lost");
  visitor.boolean_or_auto("keep_steps", config.keeps_steps,
                          "keep the steps of all replicas to the end of the run; false: memory "
                          "does not grow with them, percentiles are within half a percent, and "
                          "the report draws nothing over time; auto: true for up to a million "
                          "requests");
  visitor.integers("steps_of", config.steps_of, 0, kMaxReplicas - 1,
                   "replicas whose steps are kept where keep_steps is not true: each gets a result "
                   "of its own");
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
                                              {"fleet", "router", unused_by_router},
                                              {"fleet", "scaling.min_replicas",
                                               unused_by_scaling}};
  return choices;
}

}  // namespace metronome
