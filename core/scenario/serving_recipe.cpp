// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/serving_recipe.h"

#include <algorithm>

#include "core/base/number_chars.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/scenario.h"

namespace metronome {

std::optional<EngineVersion> engine_version(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  EngineVersion version = {};
  for (std::size_t i = 0; i < version.size(); ++i) {
    const auto read = read_number(text.data(), text.data() + text.size(), version[i]);
    if (read.ec != std::errc()) return i == 0 ? std::nullopt : std::optional(version);
    text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
    if (!text.starts_with('.')) return version;
    text.remove_prefix(1);
  }
  return version;
}

bool is_before(std::string_view version, const EngineVersion& other) {
  const std::optional<EngineVersion> named = engine_version(version);
  return named && *named < other;
}

std::vector<ServeDefault> serving_recipe(const Scenario& scenario, const RecipeContext& context) {
  const EngineProduct& product = product_of(scenario.scheduler.policy);
  const std::optional<HardwareSpec> gpu = known_hardware(scenario.hardware);
  if (product.recipe == nullptr || !gpu) return {};
  return product.recipe(scenario, *gpu, context);
}

}  // namespace metronome
