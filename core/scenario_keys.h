// What reading, merging, validating and showing a scenario share.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "core/policy_registry.h"
#include "core/scenario.h"

namespace metronome {

// Seeds are written as YAML integers.
constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();

// Every choice of a scenario with the keys that each of its values has no use for: policy, KV
// backend, and those of workload_choices().
std::span<const Choice> scenario_choices();

bool reads_key(const PolicyInfo& policy, std::string_view key);

// The fields of a scenario around its `workload`, which read_workload_config() reads.
void visit_before_workload(FieldVisitor& visitor, Scenario& scenario);
void visit_after_workload(FieldVisitor& visitor, Scenario& scenario);

}  // namespace metronome
