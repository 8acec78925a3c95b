// SPDX-License-Identifier: Apache-2.0
#include "core/workload/workload_sections.h"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>

namespace metronome {

std::optional<std::size_t> position_of(std::string_view name,
                                       std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

Unused unused_in_table(const UseTable& table, std::string_view value) {
  const std::optional<std::size_t> chosen = position_of(value, table.names);
  if (!chosen.has_value()) return {};
  Unused unused;
  for (const KeyUse& use : table.uses) {
    if ((use.used_by >> *chosen & 1u) != 0) continue;
    std::vector<std::string_view> users;
    for (std::size_t i = 0; i < table.names.size(); ++i) {
      if ((use.used_by >> i & 1u) != 0) users.push_back(table.names[i]);
    }
    unused.keys.push_back({use.key, fmt::format("not used by {} {}; it belongs to {}",
                                                table.selector, value, join_names(users))});
  }
  return unused;
}

Unused unused_with_complaint(std::span<const std::string_view> keys, const std::string& complaint) {
  Unused unused;
  for (const std::string_view key : keys) unused.keys.push_back({key, complaint});
  return unused;
}

const ConfigNode* given(const ConfigNode* section, std::string_view key) {
  if (section == nullptr || section->kind != ConfigNode::Kind::Map) return nullptr;
  const ConfigNode* node = section->find(key);
  return node != nullptr && node->kind != ConfigNode::Kind::Null ? node : nullptr;
}

void Section::fail(std::string_view key, const std::string& message) const {
  const ConfigNode* at = get(key);
  fail_config(at != nullptr ? at->where : where, path + "." + std::string(key), message);
}

void check_needed(const Section& section, const UseTable& table, std::size_t chosen) {
  for (const KeyUse& use : table.uses) {
    if ((use.needed_by >> chosen & 1u) == 0 || section.get(use.key) != nullptr) continue;
    section.fail(use.key, "missing; " + std::string(table.selector) + " " +
                              std::string(table.names[chosen]) + " needs it");
  }
}

void check_weights(const Section& section, std::size_t num_values,
                   const std::vector<double>& weights) {
  if (weights.empty()) return;  // equal weights
  if (weights.size() != num_values) {
    section.fail("weights", fmt::format("{} weights for {} values; one weight per value",
                                        weights.size(), num_values));
  }
  if (!(std::accumulate(weights.begin(), weights.end(), 0.0) > 0)) {
    section.fail("weights", "all weights are 0; at least one must be positive");
  }
}

}  // namespace metronome
