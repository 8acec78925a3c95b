// SPDX-License-Identifier: Apache-2.0
// Keys whose value decides which other keys are used, such as `scheduler.policy` or
// `workload.arrivals.process`. A table of choices says this once. Three functions read it: they
// refuse unused keys, drop inherited ones, and leave them out of the resolved config.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_node.h"

namespace metronome {

struct UnusedKey {
  std::string_view key;   // dotted, below the section of the choice
  std::string complaint;  // why it has no effect, and what is allowed
};

// The keys that one value of a choice does not use.
struct Unused {
  std::vector<UnusedKey> keys;
  // Keys that the value does use, but that were set for the keys above. They are dropped with them
  // when inherited, and accepted when given together with the choice.
  std::vector<std::string_view> companions;
};

struct Choice {
  std::string section;   // dotted path of the mapping that holds all the keys; empty: the root
  std::string_view key;  // the choosing key; dotted, below the section
  Unused (*unused_by)(std::string_view value);  // empty for a value that does not exist
};

// In the functions below, a tree makes a choice when it holds a scalar at the choice's key. Choices
// that the tree does not make have no effect.

// Dotted keys that the choices made in `chosen` do not use.
std::vector<std::string> unused_keys(const ConfigNode& chosen, std::span<const Choice> choices);

// Throws ConfigError for the first key of `given` that a choice made in `chosen` does not use. A
// null is accepted, and a `false` unless `defaults`, the values of keys that are not given, says
// `true`: turning such a key off has a meaning. `path` is the dotted prefix shown in messages.
void refuse_unused_keys(const ConfigNode& given, const ConfigNode& chosen,
                        std::span<const Choice> choices, const ConfigNode& defaults,
                        const std::string& path);

// Erases from `inherited` the keys that the choices made in `over` do not use. The caller then
// merges `over` into `inherited`.
void drop_inherited_keys(ConfigNode& inherited, const ConfigNode& over,
                         std::span<const Choice> choices);

// Drops unused keys within one tree: a choice made by `--set` drops the file's keys for the old
// value. Keys also set by `--set` stay.
void drop_superseded_keys(ConfigNode& root, std::span<const Choice> choices);

}  // namespace metronome
