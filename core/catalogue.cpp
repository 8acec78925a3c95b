#include "core/catalogue.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace metronome {

namespace fs = std::filesystem;

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

bool path_exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || is_folder(path)) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace metronome
