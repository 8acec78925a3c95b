// SPDX-License-Identifier: Apache-2.0
#include "core/model/generation_config.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json_place.h"
#include "core/model/json_section.h"

namespace metronome {
namespace {

std::string path_in(const std::string& folder) { return folder + "/generation_config.json"; }

std::optional<std::string> text_if_any(const std::string& path) {
  if (!path_exists(path)) return std::nullopt;
  return read_file(path, "a readable file");
}

Json parse_object(std::string_view json, const std::string& path) {
  Json root = parse_json(std::string(json), path);
  if (!root.is_object()) throw ConfigError(path + ": is not an object; allowed: a JSON object");
  return root;
}

// A number that `is_allowed`, of which `allowed` speaks; nullopt: the file has none.
template <class IsAllowed>
std::optional<double> number_in(const JsonSection& section, const char* key, const char* allowed,
                                const IsAllowed& is_allowed) {
  const Json* value = section.find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !is_allowed(value->get<double>())) {
    section.fail(key, "is " + JsonSection::excerpt(*value) + "; allowed: " + allowed);
  }
  return value->get<double>();
}

std::optional<std::int64_t> count_in(const JsonSection& section, const char* key, double least,
                                     const char* allowed) {
  const auto is_allowed = [least](double value) {
    return value >= least && value <= std::numeric_limits<std::int32_t>::max() &&
           std::trunc(value) == value;
  };
  const std::optional<double> count = number_in(section, key, allowed, is_allowed);
  if (!count) return std::nullopt;
  return static_cast<std::int64_t>(*count);
}

}  // namespace

void apply_generation_config_text(std::string_view json, const std::string& path,
                                  ModelConfig& model) {
  const Json root = parse_object(json, path);
  const JsonSection section(root, path, "");
  std::vector<std::int32_t> ids = section.token_ids("eos_token_id");
  if (!ids.empty()) model.eos_token_ids = std::move(ids);
}

void apply_generation_config(const std::string& folder, ModelConfig& model) {
  const std::string path = path_in(folder);
  if (const auto text = text_if_any(path)) apply_generation_config_text(*text, path, model);
}

std::string SamplingDefaults::text() const {
  std::string text;
  const auto add = [&text](const char* name, const auto& number) {
    if (number) text += (text.empty() ? "" : ", ") + std::string(name) + " " + Json(*number).dump();
  };
  add("temperature", temperature);
  add("top_k", top_k);
  add("top_p", top_p);
  add("min_p", min_p);
  add("repetition_penalty", repetition_penalty);
  add("max_new_tokens", max_new_tokens);
  return text;
}

SamplingDefaults parse_sampling_defaults(std::string_view json, const std::string& path) {
  const Json root = parse_object(json, path);
  const JsonSection section(root, path, "");
  SamplingDefaults defaults;
  defaults.temperature = number_in(section, "temperature", "numbers from 0 to 100",
                                   [](double value) { return value >= 0 && value <= 100; });
  defaults.top_p = number_in(section, "top_p", "numbers above 0, to 1",
                             [](double value) { return value > 0 && value <= 1; });
  defaults.min_p = number_in(section, "min_p", "numbers from 0 to 1",
                             [](double value) { return value >= 0 && value <= 1; });
  defaults.repetition_penalty = number_in(section, "repetition_penalty", "numbers above 0",
                                          [](double value) { return value > 0; });
  defaults.top_k = count_in(section, "top_k", -1, "integers from 1; 0 and -1: all tokens");
  if (defaults.top_k == -1) defaults.top_k = 0;
  defaults.max_new_tokens = count_in(section, "max_new_tokens", 1, "integers from 1");
  return defaults;
}

SamplingDefaults read_sampling_defaults(const std::string& folder) {
  const std::string path = path_in(folder);
  const auto text = text_if_any(path);
  return text ? parse_sampling_defaults(*text, path) : SamplingDefaults();
}

}  // namespace metronome
