// A parsed configuration file as a tree that remembers where each value stands, so that every
// complaint can name file, line and key. yaml-cpp stays behind config_node.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metronome {

struct SourceLocation {
  std::shared_ptr<const std::string> file;  // or the command-line option that set the value
  int line = 0;                             // 1-based; 0 where a line makes no sense

  std::string to_string() const;  // "file:line" or "file"
  // Set by `--set` rather than read from a file.
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
  SourceLocation where;           // of the key for an entry of a mapping, else of the value

  const ConfigNode* find(std::string_view key) const;
  ConfigNode* find(std::string_view key);
  // The node at a dotted path through mappings, nullptr when there is none. An empty path is this
  // node.
  const ConfigNode* find_path(std::string_view path) const;
  ConfigNode* find_path(std::string_view path);
  // Removes an entry of a mapping; no effect when there is none.
  void erase(std::string_view key);
  // What the value is, in words for a complaint: 'text', "nothing", "a list", "a mapping".
  std::string describe() const;
};

struct ConfigNode::Entry {
  std::string key;
  ConfigNode value;

  Entry(std::string key_text, ConfigNode node) : key(std::move(key_text)), value(std::move(node)) {}
};

// Both throw ConfigError: unreadable file, malformed YAML, duplicate key, more than one document,
// anchors, aliases and tags (a scenario must read the same to a person and to the program), more
// than 32 levels of nesting. An empty file gives a Null node.
ConfigNode load_config_file(const std::string& path);
ConfigNode parse_config_text(std::string_view text, const std::string& name);

// Lays `over` onto `base`: maps merge key by key, anything else replaces.
void merge_into(ConfigNode& base, const ConfigNode& over);

// Applies one `--set a.b.c=value`; value is YAML (so lists and maps work) and replaces what was
// there. Sequence items are addressed by number, from 0. The value's location is `--set a.b.c`.
// Throws ConfigError when the assignment is malformed, crosses a scalar or leaves a list.
void apply_assignment(ConfigNode& root, std::string_view assignment);

// The same, with the path below `root` apart from the key as the user wrote it (`--set KEY`).
void assign_value(ConfigNode& root, std::string_view path, std::string_view value,
                  std::string_view key);

// The `a.b.c` of an assignment. Throws ConfigError when it is malformed.
std::string_view assignment_key(std::string_view assignment);

// Where the value of an assignment stands: `--set KEY`.
SourceLocation assignment_location(std::string_view key);

}  // namespace metronome
