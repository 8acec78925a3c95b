// SPDX-License-Identifier: Apache-2.0
// Shared code of reading, merging, validating and showing a scenario.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "core/config/config_choice.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/serve_defaults.h"

namespace metronome {

class ConfigNode;
class FieldVisitor;
struct Scenario;

// Every choice of a scenario with the keys that each of its values does not use: policy, KV
// backend, and workload_choices().
std::span<const Choice> scenario_choices();

// The values of a scenario's keys that are not given.
const ConfigNode& scenario_defaults();

// Throws ConfigError for a key of `scheduler` that no policy reads; names the chosen policy's keys.
// `path` is the dotted prefix of the tree, empty or ending in a dot.
void refuse_unknown_policy_keys(const ConfigNode& source, const std::string& path);

// Where a key of this name belongs in a scenario: "cost_model.tensor_parallel_size", or several
// joined by "or". Also for options of engines that have another name here. Empty: nowhere.
std::string place_of_key(std::string_view key);

// Defaults of the policy's engine for the scenario's GPU, as its server sets them: of keys that the
// user did not set (or set to `auto` or null) and that the scenario's choices use. Empty if no such
// engine or GPU is known.
std::vector<ServeDefault> unset_serve_defaults(const Scenario& scenario);

// The tree with these keys added.
ConfigNode with_serve_defaults(ConfigNode tree, const std::vector<ServeDefault>& defaults);

// The fields of a scenario before and after `workload`, which read_workload_config() reads.
void visit_before_workload(FieldVisitor& visitor, Scenario& scenario);
void visit_after_workload(FieldVisitor& visitor, Scenario& scenario);

}  // namespace metronome
