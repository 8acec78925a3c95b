// SPDX-License-Identifier: Apache-2.0
#include "engines/flags/server_flags.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/scenario/engine_product.h"
#include "core/scenario/scenario.h"
#include "core/scenario/serving_recipe.h"
#include "engines/flags/known_flags.h"

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

EngineFlags flags_of_release(EngineFlags flags, std::string_view release) {
  if (!engine_version(release)) return flags;
  const std::string_view engine = find_server(flags.engine)->name;
  const std::string server = flags.engine + " " + std::string(release);
  std::vector<std::string> kept;
  std::vector<std::string> notes;
  for (std::string& flag : flags.flags) {
    const std::string word = flag.substr(0, flag.find(flags.is_yaml ? ':' : ' '));
    const KnownFlag* known = find_flag(engine, word);
    const FlagPresence presence =
        known == nullptr ? FlagPresence::Present : presence_in_version(engine, *known, release);
    if (presence == FlagPresence::Absent) {
      notes.push_back(server + " has no " + word);
      continue;
    }
    if (presence == FlagPresence::Unknown) {
      notes.push_back(server + " may have no " + word +
                      (known->first_version.empty() ? "" : ", which " + known->first_version +
                                                               " has"));
    }
    kept.push_back(std::move(flag));
  }
  flags.flags = std::move(kept);
  flags.notes.insert(flags.notes.begin(), notes.begin(), notes.end());
  const std::string rules = std::exchange(flags.version, std::string(release));
  if (engine_version(rules) != engine_version(release)) {
    flags.notes.push_back("the simulation has the rules of " + flags.engine + " " + rules);
  }
  return flags;
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
