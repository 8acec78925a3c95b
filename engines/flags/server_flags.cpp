// SPDX-License-Identifier: Apache-2.0
#include "engines/flags/server_flags.h"

#include <algorithm>
#include <cstddef>

#include "core/scenario/engine_product.h"
#include "core/scenario/scenario.h"

namespace metronome {

const EngineProduct* find_server(std::string_view engine) {
  const auto all = all_engines();
  const auto found = std::find_if(all.begin(), all.end(), [engine](const EngineProduct& product) {
    return product.flags != nullptr && product.flags->server == engine;
  });
  return found == all.end() ? nullptr : &*found;
}

std::vector<EngineFlags> engine_flags(const Scenario& scenario) {
  const EngineProduct& own = product_of(scenario.scheduler.policy);
  std::vector<EngineFlags> all;
  if (own.flags != nullptr) all.push_back(own.flags->write(scenario));
  for (const EngineProduct& product : all_engines()) {
    if (&product == &own || product.flags == nullptr) continue;
    if (!product.flags->takes_other_policies) continue;
    all.push_back(product.flags->write(scenario));
    all.back().is_comparison = own.flags != nullptr;
  }
  return all;
}

FlagChanges flag_changes(const EngineFlags& before, const EngineFlags& after) {
  const auto name = [](const std::string& flag) {
    const std::string whole = flag.substr(0, flag.find(' '));
    return whole.starts_with("--no-") ? "--" + whole.substr(5) : whole;
  };
  const auto find = [&name](const std::vector<std::string>& flags, const std::string& flag) {
    return std::find_if(flags.begin(), flags.end(),
                        [&](const std::string& other) { return name(other) == name(flag); });
  };
  FlagChanges changes{after.engine,  after.version,      {}, {}, {}, after.notes,
                      after.refusal, after.is_comparison};
  if (!after.refusal.empty()) return changes;
  for (const std::string& flag : after.flags) {
    const auto old = find(before.flags, flag);
    if (old == before.flags.end()) {
      changes.added.push_back(flag);
    } else if (*old != flag) {
      changes.changed.push_back({*old, flag});
    }
  }
  for (const std::string& flag : before.flags) {
    if (find(after.flags, flag) == after.flags.end()) changes.removed.push_back(flag);
  }
  return changes;
}

std::string joined_flags(const EngineFlags& flags) {
  std::string text;
  for (const std::string& flag : flags.flags) text += (text.empty() ? "" : " ") + flag;
  return text;
}

std::vector<std::string> flag_lines(const EngineFlags& flags) {
  if (!flags.is_yaml) return {joined_flags(flags)};
  std::vector<std::string> lines;
  std::string section;
  for (const std::string& flag : flags.flags) {
    const std::size_t dot = flag.substr(0, flag.find(':')).find('.');
    const std::string own = dot == std::string::npos ? std::string() : flag.substr(0, dot);
    if (!own.empty() && own != section) lines.push_back(own + ":");
    section = own;
    lines.push_back(own.empty() ? flag : "  " + flag.substr(dot + 1));
  }
  return lines;
}

}  // namespace metronome
