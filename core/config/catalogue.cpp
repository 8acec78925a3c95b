#include "core/config/catalogue.h"

namespace metronome {

std::string unknown_entry_message(const std::vector<std::string_view>& names,
                                  const std::string& name, const char* file_kind) {
  const bool looks_like_path = name.find('/') != std::string::npos || name.ends_with(".json") ||
                               name.ends_with(".yaml") || name.ends_with(".csv");
  if (looks_like_path) {
    return "no such file: " + name + "; allowed: a name of the catalogue, or " + file_kind;
  }
  std::string message = "unknown name '" + name + "'";
  const std::string_view nearest = nearest_name(name, names);
  if (!nearest.empty()) message += " (did you mean '" + std::string(nearest) + "'?)";
  return message + "; allowed: " + join_names(names) + ", or " + file_kind;
}

void fail_unknown_entry(const std::vector<std::string_view>& names, const std::string& name,
                        const char* key, const char* file_kind, const SourceLocation& where) {
  fail_config(where, key, unknown_entry_message(names, name, file_kind));
}

}  // namespace metronome
