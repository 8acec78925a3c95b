// SPDX-License-Identifier: Apache-2.0
// Shared code of the model and hardware catalogues: YAML files that map names to entries.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/files.h"
#include "core/config/config_node.h"
#include "core/config/config_reader.h"

namespace metronome {

// An entry of a catalogue may take keys from another: one with `like: NAME` has the keys of the
// entry NAME that it lacks itself.
struct Relatives {
  std::string_view catalogue;                     // the program's own, where NAME is
  const char* file;                               // for messages
  const char* allowed;                            // the names
  std::string (*name_of)(std::string_view name);  // that of the catalogue, of any other; or empty
  // Whether an entry takes a key. Null: it takes all.
  bool (*takes)(const ConfigNode& entry, std::string_view key);
};

// The entry without the key `like`, and with what it takes. Throws ConfigError for a name that the
// catalogue lacks.
ConfigNode with_relative(ConfigNode entry, const Relatives& relatives);

// The entries of a catalogue, in the order of the file. `entry_error` describes the error of an
// entry as "key: what; what is allowed", or returns nothing. Throws ConfigError.
template <class Entry>
std::vector<Entry> parse_entries(const ConfigNode& root, const char* what,
                                 std::string (*entry_error)(const Entry&),
                                 const Relatives& relatives) {
  if (root.kind != ConfigNode::Kind::Map || root.entries.empty()) {
    fail_config(root.where, "", std::string("no ") + what + "; allowed: NAME: {KEY: VALUE}");
  }
  std::vector<Entry> entries;
  for (const auto& [name, given] : root.entries) {
    const ConfigNode node = with_relative(given, relatives);
    Entry entry;
    entry.name = name;
    ConfigReader reader(node, name);
    visit_fields(reader, entry);
    reader.finish();
    const std::string error = entry_error(entry);
    if (!error.empty()) fail_config(node.where, "", name + "." + error);
    entries.push_back(std::move(entry));
  }
  return entries;
}

// The lines of one entry of a catalogue of this program, or nothing. To parse them takes a fraction
// of the time that the whole catalogue takes. Lines of an entry are indented, comments, too; the
// catalogue does not begin with an entry.
std::string_view entry_text(std::string_view catalogue, std::string_view name);

// The names of the entries of such a catalogue, in the order of the file.
std::vector<std::string_view> entry_names(std::string_view catalogue);

template <class Entry>
const Entry* find_entry(const std::vector<Entry>& entries, std::string_view name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// Whether a name or path is a path, whatever exists: it has a '/' or ends as a file of a catalogue.
bool looks_like_path(std::string_view name);

// Says that a name is neither an entry nor a path, with the nearest name and the list of names.
// `file_kind` says which paths are allowed.
std::string unknown_entry_message(const std::vector<std::string_view>& names,
                                  const std::string& name, const char* file_kind);

// Throws ConfigError for a name that is neither an entry nor a path. The message has the nearest
// name and the list of names. `file_kind` says which paths are allowed.
[[noreturn]] void fail_unknown_entry(const std::vector<std::string_view>& names,
                                     const std::string& name, const char* key,
                                     const char* file_kind, const SourceLocation& where);

}  // namespace metronome
