// What reading, merging, validating and showing a scenario share.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "core/policy_registry.h"
#include "core/scenario.h"

namespace metronome {

// Seeds are written as YAML integers.
constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();

// Far above any real setting; they keep products of two settings inside 64 bits.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMaxSeqs = std::int64_t{1} << 20;
constexpr double kHourMs = 3'600'000;
constexpr double kShortestLimitMs = 0.001;

// A choice whose value is kept as its name.
void choose_name(FieldVisitor& visitor, const char* key, std::string& value,
                 std::span<const std::string_view> names, const char* doc);

// Every choice of a scenario with the keys that each of its values has no use for: policy, KV
// backend, and those of workload_choices().
std::span<const Choice> scenario_choices();

// Throws ConfigError for a key of `scheduler` that no policy reads; names those of the chosen one.
// `path` is the dotted prefix of the tree, empty or ending in a dot.
void refuse_unknown_policy_keys(const ConfigNode& source, const std::string& path);

bool reads_key(const PolicyInfo& policy, std::string_view key);

// The fields of a scenario around its `workload`, which read_workload_config() reads.
void visit_before_workload(FieldVisitor& visitor, Scenario& scenario);
void visit_after_workload(FieldVisitor& visitor, Scenario& scenario);

}  // namespace metronome
