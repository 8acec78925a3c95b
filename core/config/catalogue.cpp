// SPDX-License-Identifier: Apache-2.0
#include "core/config/catalogue.h"

#include <algorithm>

#include "core/base/clip.h"
#include "core/base/error.h"

namespace metronome {

ConfigNode with_relative(ConfigNode entry, const Relatives& relatives) {
  const ConfigNode* const like = entry.find("like");
  if (like == nullptr) return entry;
  const std::string name = relatives.name_of(like->scalar);
  const std::string_view text = entry_text(relatives.catalogue, name);
  if (text.empty()) {
    fail_config(like->where, "like",
                "is " + like->describe() + "; allowed: " + std::string(relatives.allowed));
  }
  entry.erase("like");
  const ConfigNode other =
      with_relative(parse_config_text(text, relatives.file).entries.front().value, relatives);
  for (const auto& [key, value] : other.entries) {
    const bool is_taken = relatives.takes == nullptr || relatives.takes(entry, key);
    if (is_taken && entry.find(key) == nullptr) entry.entries.emplace_back(key, value);
  }
  return entry;
}

std::string_view entry_text(std::string_view catalogue, std::string_view name) {
  if (name.empty() || name.find_first_of(": \n") != std::string_view::npos) return {};
  const std::string key = "\n" + std::string(name) + ":";
  const std::size_t before = catalogue.find(key);
  if (before == std::string_view::npos) return {};
  const std::size_t begin = before + 1;
  std::size_t end = before + key.size();
  do {  // the lines of an entry are indented
    end = std::min(catalogue.find('\n', end), catalogue.size() - 1) + 1;
  } while (end < catalogue.size() && (catalogue[end] == ' ' || catalogue[end] == '\n'));
  return catalogue.substr(begin, end - begin);
}

std::vector<std::string_view> entry_names(std::string_view catalogue) {
  std::vector<std::string_view> names;
  while (!catalogue.empty()) {
    const std::string_view line = catalogue.substr(0, catalogue.find('\n'));
    const bool is_entry = !line.empty() && line.front() != ' ' && line.front() != '#';
    if (is_entry) names.push_back(line.substr(0, line.find(':')));
    catalogue.remove_prefix(std::min(line.size() + 1, catalogue.size()));
  }
  return names;
}

bool looks_like_path(std::string_view name) {
  constexpr std::string_view kEndings[] = {".json", ".yaml", ".csv", ".gguf"};
  if (name.starts_with('{')) return false;  // a value in JSON
  return name.find('/') != std::string_view::npos ||
         std::any_of(std::begin(kEndings), std::end(kEndings),
                     [name](std::string_view ending) { return name.ends_with(ending); });
}

std::string unknown_entry_message(const std::vector<std::string_view>& names,
                                  const std::string& name, const char* file_kind) {
  if (looks_like_path(name)) {
    return "no such file: " + name + "; allowed: a name of the catalogue, or " + file_kind;
  }
  std::string message = "unknown name '" + clipped(name) + "'";
  const std::string_view nearest = nearest_name(name, names);
  if (!nearest.empty()) message += " (did you mean '" + std::string(nearest) + "'?)";
  return message + "; allowed: " + join_names(names) + ", or " + file_kind;
}

void fail_unknown_entry(const std::vector<std::string_view>& names, const std::string& name,
                        const char* key, const char* file_kind, const SourceLocation& where) {
  fail_config(where, key, unknown_entry_message(names, name, file_kind));
}

}  // namespace metronome
