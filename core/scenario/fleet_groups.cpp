// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/fleet_groups.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/names.h"

namespace metronome {
namespace {

[[noreturn]] void fail_groups(const Scenario& scenario, const std::string& message) {
  fail_config(scenario.location_of("fleet.groups"), "fleet.groups", message);
}

// The values of a mapping, as settings of dotted keys.
void add_settings(const std::string& path, const Json& value, std::vector<Setting>& settings) {
  if (!value.is_object()) return settings.push_back({path, value});
  for (const Json::Member& member : value.items()) {
    add_settings(path.empty() ? member.key : path + "." + member.key, member.value, settings);
  }
}

// The scenario with other values. The defaults of its engine follow them.
Scenario changed(const Scenario& alone, const std::vector<Setting>& settings) {
  Json config = alone.resolved();
  for (const ServeDefault& added : alone.serve_defaults) {
    const std::size_t dot = added.key.find('.');
    if (dot == std::string::npos) continue;  // said by the model's name
    if (Json* const section = config.find(added.key.substr(0, dot))) {
      section->erase(added.key.substr(dot + 1));
    }
  }
  Scenario scenario = resolved_scenario(config, alone.name, settings);
  scenario.name = alone.name;
  return scenario;
}

FleetGroup read_group(const Scenario& alone, const Json& given, std::size_t place,
                      const Scenario& scenario) {
  FleetGroup group;
  const Json* const count = given.find("count");
  if (count == nullptr || !count->is_number_integer() || count->get<std::int64_t>() < 1) {
    fail_groups(scenario, fmt::format("group {} needs a count; allowed: 1 to {}", place,
                                      scenario.fleet.replicas));
  }
  group.num_replicas = count->get<std::int64_t>();
  std::vector<Setting> settings;
  for (const Json::Member& member : given.items()) {
    if (member.key == "count") continue;
    constexpr std::string_view kAllowed[] = {"hardware",    "price_per_gpu_hour", "quantization",
                                             "engine",      "kv_cache",           "scheduler",
                                             "speculative", "cost_model"};
    if (std::find(std::begin(kAllowed), std::end(kAllowed), member.key) == std::end(kAllowed)) {
      fail_groups(scenario, fmt::format("group {} has '{}', in which replicas cannot differ; "
                                        "allowed: count, {}",
                                        place, member.key, join_names(kAllowed)));
    }
    add_settings(member.key, member.value, settings);
  }
  for (const Setting& setting : settings) group.changed.push_back(setting.text());
  try {
    group.scenario = changed(alone, settings);
  } catch (const ConfigError& error) {
    fail_groups(scenario, fmt::format("group {}: {}", place, error.what()));
  }
  return group;
}

}  // namespace

std::vector<FleetGroup> fleet_groups(const Scenario& scenario) {
  Scenario alone = scenario;
  alone.fleet = {};
  std::vector<FleetGroup> groups;
  std::int64_t num_left = scenario.fleet.replicas;
  for (const Json& given : scenario.fleet.groups) {
    groups.push_back(read_group(alone, given, groups.size(), scenario));
    num_left -= groups.back().num_replicas;
  }
  if (num_left < 0) {
    fail_groups(scenario, fmt::format("the groups have {} replicas; allowed: at most {}, which "
                                      "fleet.replicas says",
                                      scenario.fleet.replicas - num_left, scenario.fleet.replicas));
  }
  if (num_left > 0) groups.push_back({num_left, {}, std::move(alone)});
  return groups;
}

bool any_has_drafts(const std::vector<FleetGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const FleetGroup& group) {
    return group.scenario.speculative.has_drafts();
  });
}

ScenarioGpus gpus_of(const Scenario& scenario) {
  if (!scenario.fleet.is_on()) {
    const std::int64_t count = scenario.cost_model.tensor_parallel_size;
    const std::optional<double>& price = scenario.price_per_gpu_hour;
    return {count, price ? std::optional(*price * static_cast<double>(count)) : std::nullopt};
  }
  ScenarioGpus all = {0, 0.0};
  for (const FleetGroup& group : fleet_groups(scenario)) {
    const ScenarioGpus each = gpus_of(group.scenario);
    all.count += group.num_replicas * each.count;
    if (!each.price_per_hour) {
      all.price_per_hour.reset();
    } else if (all.price_per_hour) {
      *all.price_per_hour += static_cast<double>(group.num_replicas) * *each.price_per_hour;
    }
  }
  return all;
}

}  // namespace metronome
