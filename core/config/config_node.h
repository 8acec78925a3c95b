// SPDX-License-Identifier: Apache-2.0
// A parsed configuration file as a tree. Each value keeps its location, so errors can name file,
// line and key. Only config_node.cpp uses yaml-cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace metronome {

struct SourceLocation {
  std::shared_ptr<const std::string> file;  // or the command-line option that set the value
  int line = 0;                             // 1-based; 0 where a line is meaningless

  std::string to_string() const;  // "file:line" or "file"
  // Whether `--set` set the value.
  bool is_assignment() const;
};

class ConfigNode {
 public:
  enum class Kind { Null, Scalar, Sequence, Map };
  struct Entry;

  Kind kind = Kind::Null;
  std::string scalar;
  bool is_quoted = false;         // a quoted scalar is a string even when it looks like a number
  std::vector<ConfigNode> items;  // Sequence
  std::vector<Entry> entries;     // Map, in file order, keys unique
  SourceLocation where;           // the key's location for a mapping entry, else the value's

  const ConfigNode* find(std::string_view key) const;
  ConfigNode* find(std::string_view key);
  // The node at a dotted path through mappings; nullptr when there is none. An empty path gives
  // this node.
  const ConfigNode* find_path(std::string_view path) const;
  ConfigNode* find_path(std::string_view path);
  // Removes an entry of a mapping; no effect when there is none.
  void erase(std::string_view key);
  // Describes the value for an error message: 'text', "nothing", "a list", "a mapping".
  std::string describe() const;
};

struct ConfigNode::Entry {
  std::string key;
  ConfigNode value;

  Entry(std::string key_text, ConfigNode node) : key(std::move(key_text)), value(std::move(node)) {}
};

// Both throw ConfigError for an unreadable file, malformed YAML, a duplicate key, several
// documents, or more than 32 levels of nesting. They also reject anchors, aliases and tags: users
// must read a scenario as the program does. An empty file gives a Null node.
ConfigNode load_config_file(const std::string& path);
ConfigNode parse_config_text(std::string_view text, const std::string& name);

// The value of the key of a mapping, to which an empty mapping is added if it has none.
ConfigNode& section_of(ConfigNode& mapping, const char* key, const SourceLocation& where);

// Merges `over` into `base`: maps merge key by key, other values replace.
void merge_into(ConfigNode& base, const ConfigNode& over);

// Applies one `--set a.b.c=value`. The value is YAML (so lists and maps work) and replaces the old
// one. Sequence items are addressed by index, from 0. The value's location is `--set a.b.c`. Throws
// ConfigError when the assignment is malformed, crosses a scalar or leaves a list.
void apply_assignment(ConfigNode& root, std::string_view assignment);

// Sets the value at `path` below `root`, as apply_assignment() does. `key` is as the user wrote it
// (`--set KEY`).
void assign_value(ConfigNode& root, std::string_view path, std::string_view value,
                  std::string_view key);

// assign_value() with a tree as value, which gets the location `--set KEY`.
void assign_node(ConfigNode& root, std::string_view path, ConfigNode value, std::string_view key);

// A tree of this value, as a reader of its text would have it. Its nodes have this location.
ConfigNode config_node(const Json& value, const SourceLocation& where);

// The other way. A scalar that is not quoted and reads as null, true, false or a number is one.
Json json_of(const ConfigNode& node);

// The `a.b.c` of an assignment. Throws ConfigError when it is malformed.
std::string_view assignment_key(std::string_view assignment);

// The location of an assigned value: `--set KEY`.
SourceLocation assignment_location(std::string_view key);

}  // namespace metronome
