// SPDX-License-Identifier: Apache-2.0
// The defaults of an engine's server in a scenario.
#include <algorithm>
#include <optional>

#include "core/config/config_writer.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_keys.h"

namespace metronome {
namespace {

bool is_set(const ConfigNode& source, std::string_view key) {
  const ConfigNode* node = source.find_path(key);
  return node != nullptr && node->kind != ConfigNode::Kind::Null && node->scalar != "auto";
}

}  // namespace

bool is_default_of(std::span<const ServeDefault> defaults, std::string_view key) {
  return std::any_of(defaults.begin(), defaults.end(),
                     [key](const ServeDefault& given) { return given.key == key; });
}

std::vector<ServeDefault> unset_serve_defaults(const Scenario& scenario) {
  const EngineProduct& product = product_of(scenario.scheduler.policy);
  if (product.serve_defaults == nullptr) return {};
  // A backend that needs the GPU reports what is wrong with its name.
  const std::optional<HardwareSpec> gpu = known_hardware(scenario.hardware);
  if (!gpu) return {};
  Scenario shown = scenario;
  const std::vector<std::string> unused = unused_keys(
      fields_to_node([&shown](FieldVisitor& visitor) { visit_before_workload(visitor, shown); }),
      scenario_choices());
  std::vector<ServeDefault> defaults = product.serve_defaults(
      scenario, *gpu, [&](std::string_view key) { return is_set(*scenario.source, key); });
  // A pool that the user counted in blocks keeps their size.
  const bool has_pool = is_set(*scenario.source, "kv_cache.num_blocks");
  std::erase_if(defaults, [&](const ServeDefault& found) {
    return is_set(*scenario.source, found.key) ||
           (has_pool && found.key == "kv_cache.block_size") ||
           std::find(unused.begin(), unused.end(), found.key) != unused.end();
  });
  return defaults;
}

ConfigNode with_serve_defaults(ConfigNode tree, const std::vector<ServeDefault>& defaults) {
  for (const ServeDefault& added : defaults) assign_value(tree, added.key, added.value, added.key);
  return tree;
}

}  // namespace metronome
