// SPDX-License-Identifier: Apache-2.0
#include "core/model/quantization_reading.h"

namespace metronome {
namespace {

[[noreturn]] void fail_regex(const JsonSection& section, const char* key,
                             const std::string& entry) {
  section.fail(key, JsonSection::excerpt(Json(entry)) +
                        " is not understood; allowed: a name, or re: and a regular expression of "
                        "ECMAScript of up to 1000 characters");
}

}  // namespace

StoredFormat integers_of(double bits, std::int64_t group_size, double scale_bytes,
                         WeightFormat format, bool has_zeros) {
  const bool is_int4 = bits == 4 && scale_bytes == 2;
  if (is_int4 && format == WeightFormat::WeightOnly) format = WeightFormat::Int4;
  const double of_group = scale_bytes + (has_zeros ? bits / 8 : 0);
  const double scale = group_size > 0 ? of_group / static_cast<double>(group_size) : 0;
  StoredFormat stored{.format = format, .int4_group_size = group_size};
  const bool has_rule =
      is_int4 && !has_zeros && (format == WeightFormat::Int4 || format == WeightFormat::Int4Fp8);
  if (!has_rule) stored.bytes = bits / 8 + scale;
  return stored;
}

StoredFormat with_bytes(WeightFormat format, double bytes) {
  return {.format = format, .int4_group_size = 0, .bytes = bytes};
}

std::int64_t read_group_size(const JsonSection& section, const char* key, std::int64_t otherwise) {
  const Json* const size = section.find(key);
  return size != nullptr && *size == Json(-1) ? 0 : section.integer_or(key, otherwise);
}

std::vector<std::string> module_names(const JsonSection& section, const char* key) {
  const Json* const list = section.find(key);
  if (list == nullptr) return {};
  std::vector<std::string> names;
  for (const Json& entry : *list) {
    if (entry.is_string()) names.push_back(entry.string());
  }
  if (!list->is_array() || names.size() != list->size()) {
    section.fail(key, "must be a list of names, got " + JsonSection::excerpt(*list) +
                          "; allowed: a list of module names");
  }
  return names;
}

void store_module(const JsonSection& section, const char* key, const std::string& entry,
                  const std::optional<StoredFormat>& format, FormatRules& rules) {
  if (!rules.store(entry, format)) fail_regex(section, key, entry);
}

void leave_module_plain(const JsonSection& section, const char* key, const std::string& entry,
                        FormatRules& rules) {
  if (!rules.leave_plain(entry)) fail_regex(section, key, entry);
}

void read_modules(const JsonSection& section, const char* key, FormatRules& rules,
                  const std::function<StoredFormat(const JsonSection&)>& read) {
  const std::optional<JsonSection> modules = section.section(key);
  if (!modules) return;
  for (const std::string& name : modules->keys()) {
    const Json* const value = modules->find(name.c_str());
    const bool is_plain = value == nullptr || (value->is_boolean() && !value->get<bool>());
    std::optional<StoredFormat> format;
    if (!is_plain) format = read(modules->required_section(name.c_str()));
    store_module(section, key, name, format, rules);
  }
}

void fail_unknown(const JsonSection& section, const char* key, const std::string& name,
                  const std::string& allowed) {
  if (name.empty() && section.find(key) == nullptr) section.fail_absent(key, allowed);
  section.fail(key, JsonSection::excerpt(Json(name)) + " is not supported; allowed: " + allowed);
}

}  // namespace metronome
