// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/fleet_rules.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <functional>
#include <string_view>
#include <tuple>

#include "core/config/config_node.h"
#include "core/config/config_reader.h"
#include "core/scenario/fleet_groups.h"
#include "core/scenario/scenario.h"

namespace metronome {
namespace {

// Reads each mapping of a list, of which errors name the place: `visit` names its keys.
using VisitEntry = std::function<void(FieldVisitor&)>;
void read_entry(const Scenario& scenario, const std::string& list, std::size_t place,
                const Json& given, const VisitEntry& visit) {
  const ConfigNode node = config_node(given, scenario.location_of(list));
  ConfigReader reader(node, fmt::format("{}.{}", list, place));
  visit(reader);
  reader.finish();
}

[[noreturn]] void fail_entry(const Scenario& scenario, const std::string& list, std::size_t place,
                             std::string_view key, std::string_view message) {
  fail_config(scenario.location_of(list), fmt::format("{}.{}.{}", list, place, key), message);
}

TimeNs ns_of_seconds(double seconds) { return std::llround(seconds * 1e9); }

}  // namespace

std::vector<PlannedFailure> planned_failures(const Scenario& scenario) {
  static const std::string kList = "fleet.failures";
  std::vector<PlannedFailure> failures;
  for (const Json& given : scenario.fleet.failures) {
    const std::size_t place = failures.size();
    std::optional<std::int64_t> replica;
    std::optional<double> at_s, down_s;
    enum class Requests : std::uint8_t { Retried, Lost } requests = Requests::Retried;
    constexpr double kMostSeconds = 1e9;
    read_entry(scenario, kList, place, given, [&](FieldVisitor& visitor) {
      visitor.optional_integer("replica", replica, 0, scenario.fleet.replicas - 1, "its number");
      visitor.optional_number("at_s", at_s, 0, kMostSeconds, "when it fails");
      visitor.optional_number("down_s", down_s, 0, kMostSeconds, "until it comes back");
      visitor.choice("requests", requests, {"retried", "lost"}, "what its requests do");
    });
    if (!replica) {
      fail_entry(scenario, kList, place, "replica",
                 fmt::format("missing; allowed: {}",
                             describe_range(std::int64_t{0}, scenario.fleet.replicas - 1)));
    }
    if (!at_s) fail_entry(scenario, kList, place, "at_s", "missing; allowed: a time in seconds");
    PlannedFailure& failure = failures.emplace_back();
    failure.replica = static_cast<std::int32_t>(*replica);
    failure.at = ns_of_seconds(*at_s);
    if (down_s) failure.until = failure.at + ns_of_seconds(*down_s);
    failure.retries = requests == Requests::Retried;
    for (std::size_t i = 0; i < place; ++i) {
      const PlannedFailure& other = failures[i];
      if (other.replica != failure.replica || other.at >= failure.until ||
          failure.at >= other.until) {
        continue;
      }
      fail_entry(scenario, kList, place, "at_s",
                 fmt::format("replica {} is down at that time, or fails again before it is back "
                             "(entry {}); allowed: times apart",
                             failure.replica, i + 1));
    }
  }
  std::stable_sort(failures.begin(), failures.end(),
                   [](const PlannedFailure& a, const PlannedFailure& b) { return a.at < b.at; });
  return failures;
}

std::vector<GatewayClass> gateway_classes(const Scenario& scenario) {
  static const std::string kList = "fleet.gateway.classes";
  std::vector<GatewayClass> classes;
  for (const Json& given : scenario.fleet.gateway.classes) {
    const std::size_t place = classes.size();
    GatewayClass one;
    read_entry(scenario, kList, place, given, [&one](FieldVisitor& visitor) {
      constexpr std::int64_t kMost = 1'000'000'000;
      visitor.text("class", one.name, "its name");
      visitor.number("share", one.share, 1e-6, 1e6, "of what leaves the queue");
      visitor.optional_integer("max_queue", one.max_queue, 0, kMost, "of its requests that wait");
      visitor.integer("importance", one.importance, -kMost, kMost, "the least is refused first");
    });
    if (one.name.empty()) {
      fail_entry(scenario, kList, place, "class", "missing; allowed: the name of a class");
    }
    const auto has_name = [&one](const GatewayClass& other) { return other.name == one.name; };
    if (std::any_of(classes.begin(), classes.end(), has_name)) {
      fail_entry(scenario, kList, place, "class",
                 fmt::format("'{}' is there already; allowed: each class once", one.name));
    }
    classes.push_back(std::move(one));
  }
  return classes;
}

namespace {

void check_scaling(const Scenario& scenario) {
  const ScalingConfig& scaling = scenario.fleet.scaling;
  const auto fail = [&scenario](std::string_view key, std::string_view message) {
    const std::string path = fmt::format("fleet.scaling.{}", key);
    fail_config(scenario.location_of(path), path, message);
  };
  if (!scaling.is_on()) return;
  if (scaling.min_replicas > scenario.fleet.replicas) {
    fail("min_replicas",
         fmt::format("more than fleet.replicas; allowed: 1 to {}", scenario.fleet.replicas));
  }
  if (!scaling.adds()) {
    fail("queue_above",
         "nothing says when to add replicas; allowed: queue_above, kv_use_above or "
         "slo_attainment_below");
  }
  if (scaling.slo_attainment_below && !scenario.slo.ttft_ms && !scenario.slo.tpot_ms &&
      !scenario.slo.e2el_ms) {
    fail("slo_attainment_below",
         "no request has a limit; allowed: with slo.ttft_ms, slo.tpot_ms or slo.e2el_ms");
  }
  for (const auto& [key, low, high] :
       {std::tuple("queue_below", scaling.queue_below, scaling.queue_above),
        std::tuple("kv_use_below", scaling.kv_use_below, scaling.kv_use_above)}) {
    if (low && high && *low > *high) {
      fail(key, fmt::format("{} is more than the value above which replicas are added; "
                            "allowed: at most {}",
                            *low, *high));
    }
  }
  if (!scenario.fleet.groups.empty()) {
    fail("min_replicas",
         "replicas that come and go are alike; allowed: no fleet.groups, or no fleet.scaling");
  }
}

void check_steps(const Scenario& scenario) {
  const FleetConfig& fleet = scenario.fleet;
  const auto fail = [&scenario](std::string_view key, std::string_view message) {
    fail_config(scenario.location_of(key), key, message);
  };
  for (const std::int64_t replica : fleet.steps_of) {
    if (replica < fleet.replicas) continue;
    fail("fleet.steps_of", fmt::format("there is no replica {}; allowed: 0 to {}", replica,
                                       fleet.replicas - 1));
  }
  if (fleet.keeps_steps.value_or(false) && !fleet.steps_of.empty()) {
    fail("fleet.steps_of",
         "fleet.keep_steps keeps those of all replicas; allowed: one of the two keys");
  }
  if (!fleet.keeps_steps.value_or(true) && fleet.steps_of.empty() &&
      scenario.results.steps.value_or(false)) {
    fail("results.steps",
         "fleet.keep_steps is false; allowed: auto, false, or replicas in fleet.steps_of");
  }
  if (scenario.results.trace.value_or(false) && fleet.steps_of.empty()) {
    fail("results.trace",
         "a trace shows one engine, and a fleet has several; allowed: auto, false, or replicas in "
         "fleet.steps_of");
  }
}

}  // namespace

void check_fleet_rules(const Scenario& scenario) {
  (void)planned_failures(scenario);
  const GatewayConfig& gateway = scenario.fleet.gateway;
  const bool has_rules = gateway.max_queue || gateway.max_wait_ms ||
                         gateway.order != GatewayOrder::Fcfs || !gateway.classes.empty();
  if (has_rules && !gateway.is_on()) {
    fail_config(scenario.location_of("fleet.gateway"), "fleet.gateway.max_in_flight",
                "missing, and no request waits without it; allowed: at least 1, or no other key "
                "of fleet.gateway");
  }
  (void)gateway_classes(scenario);
  check_scaling(scenario);
  check_steps(scenario);
}

void check_fleet_groups(const Scenario& scenario) {
  const FleetConfig& fleet = scenario.fleet;
  const bool has_drafts = any_has_drafts(fleet_groups(scenario));
  if (!has_drafts || (fleet.keeps_steps.value_or(true) && fleet.steps_of.empty())) return;
  const std::string key = fleet.steps_of.empty() ? "fleet.keep_steps" : "fleet.steps_of";
  fail_config(scenario.location_of(key), key,
              "figures of drafts need the steps of all replicas; allowed: keep_steps auto or true");
}

}  // namespace metronome
