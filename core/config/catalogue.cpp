#include "core/config/catalogue.h"

namespace metronome {

void fail_unknown_entry(const std::vector<std::string_view>& names, const std::string& name,
                        const char* key, const char* file_kind, const SourceLocation& where) {
  const bool looks_like_path =
      name.find('/') != std::string::npos || name.ends_with(".json") || name.ends_with(".yaml");
  if (looks_like_path) {
    fail_config(where, key,
                "no such file: " + name + "; allowed: a name of the catalogue, or " + file_kind);
  }
  std::string message = "unknown name '" + name + "'";
  const std::string_view nearest = nearest_name(name, names);
  if (!nearest.empty()) message += " (did you mean '" + std::string(nearest) + "'?)";
  fail_config(where, key, message + "; allowed: " + join_names(names) + ", or " + file_kind);
}

}  // namespace metronome
