// Keys that choose, such as `scheduler.policy` or `workload.arrivals.process`: their value decides
// which other keys mean something. A table of choices says so once; refusing keys given in vain,
// dropping inherited ones and leaving them out of the resolved config all read it there.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_node.h"

namespace metronome {

struct UnusedKey {
  std::string_view key;   // dotted, below the section of the choice
  std::string complaint;  // why it is of no use, and what is allowed
};

// What one value of a choice has no use for.
struct Unused {
  std::vector<UnusedKey> keys;
  // A key that the value does use, but that was meant for the ones above: dropped with them when
  // inherited, welcome when given beside the choice. Empty when there is none.
  std::string_view companion;
};

struct Choice {
  std::string section;   // dotted path of the mapping that holds all the keys; empty: the root
  std::string_view key;  // the one that chooses; dotted, below the section
  Unused (*unused_by)(std::string_view value);  // empty for a value that does not exist
};

// In the functions below a tree makes a choice when it holds a scalar at the choice's key; choices
// that it does not make have no effect.

// Dotted keys that the choices made in `chosen` have no use for.
std::vector<std::string> unused_keys(const ConfigNode& chosen, std::span<const Choice> choices);

// Throws ConfigError for the first key of `given` that a choice made in `chosen` has no use for.
// A key that is null or `false` asks for nothing and is let through. `path` is the dotted prefix
// shown in messages.
void refuse_unused_keys(const ConfigNode& given, const ConfigNode& chosen,
                        std::span<const Choice> choices, const std::string& path);

// Erases from `inherited` what the choices made in `over`, which is about to be merged into it,
// have no use for.
void drop_inherited_keys(ConfigNode& inherited, const ConfigNode& over,
                         std::span<const Choice> choices);

// The same within one tree: a choice made by `--set` drops what the file gave for the old value.
// What was assigned beside it stays.
void drop_superseded_keys(ConfigNode& root, std::span<const Choice> choices);

}  // namespace metronome
