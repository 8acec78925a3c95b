// Shared code of reading, merging, validating and showing a scenario.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "core/engine/policies/registry.h"
#include "core/scenario/scenario.h"

namespace metronome {

// Every choice of a scenario with the keys that each of its values does not use: policy, KV
// backend, and workload_choices().
std::span<const Choice> scenario_choices();

// Throws ConfigError for a key of `scheduler` that no policy reads; names the chosen policy's keys.
// `path` is the dotted prefix of the tree, empty or ending in a dot.
void refuse_unknown_policy_keys(const ConfigNode& source, const std::string& path);

// The fields of a scenario before and after `workload`, which read_workload_config() reads.
void visit_before_workload(FieldVisitor& visitor, Scenario& scenario);
void visit_after_workload(FieldVisitor& visitor, Scenario& scenario);

}  // namespace metronome
