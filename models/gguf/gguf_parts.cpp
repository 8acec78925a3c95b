// SPDX-License-Identifier: Apache-2.0
#include "models/gguf/gguf_parts.h"

#include <fmt/core.h>

namespace metronome {
namespace {

// As llama_split_path() of llama.cpp writes it.
std::string ending_of(std::int64_t part, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}", part + 1, count);
}

}  // namespace

std::string gguf_part_path(std::string_view path, std::int64_t part, std::int64_t count,
                           std::int64_t other) {
  constexpr std::string_view kType = ".gguf";
  const std::string ending = ending_of(part, count).append(kType);
  if (!path.ends_with(ending)) return {};
  path.remove_suffix(ending.size());
  return std::string(path) + ending_of(other, count).append(kType);
}

std::string gguf_model_name(std::string_view file_name) {
  constexpr std::string_view kForm = "-00000-of-00000";
  if (file_name.size() <= kForm.size()) return std::string(file_name);
  const std::string_view ending = file_name.substr(file_name.size() - kForm.size());
  const bool is_part =
      std::equal(ending.begin(), ending.end(), kForm.begin(),
                 [](char c, char form) { return form == '0' ? c >= '0' && c <= '9' : c == form; });
  return std::string(file_name.substr(0, file_name.size() - (is_part ? kForm.size() : 0)));
}

}  // namespace metronome
