// SPDX-License-Identifier: Apache-2.0
// The steps from the tree of a scenario file to scenarios. scenario.cpp puts them together.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_node.h"
#include "core/scenario/scenario.h"

namespace metronome {

// scenario_overrides.cpp. The file with short forms written out, with its keys for `backend` and
// with assignments of `--set`. Throws ConfigError.
ConfigNode with_overrides(ConfigNode root, const std::vector<std::string>& assignments,
                          std::string_view backend);
// A resolved config with settings, as `--set` would apply them.
ConfigNode with_settings(ConfigNode root, std::span<const Setting> settings);

// scenario_variants.cpp.
// Checks the keys of a part of a file before it is merged, while their path is known.
void check_single_keys(const ConfigNode& overlay, const std::string& path, ConfigReader& reader);
// The names of the variants, all valid and different.
std::vector<std::string> read_variant_names(const ConfigNode& variants);
// The base with each variant over it.
std::vector<ConfigNode> merge_variants(const ConfigNode& base, const ConfigNode& variants);
// Refuses an assignment without effect, which is probably a mistake.
void refuse_idle_overrides(const std::vector<ConfigNode>& merged,
                           const std::vector<std::string>& assignments);

// scenario_reading.cpp. One variant as a validated scenario without a name. Relative paths of the
// file are relative to `base_dir`.
Scenario read_scenario(const ConfigNode& given, const std::string& base_dir);

}  // namespace metronome
