// SPDX-License-Identifier: Apache-2.0
// Functions that the readers of quantization_methods.h share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/format_rules.h"
#include "core/model/json_section.h"

namespace metronome {

// Integers with a scale of so many bytes for each group of weights; no group: a scale of each
// channel, which does not count. `format` says how they are multiplied. `has_zeros`: a group has a
// zero point of as many bits as a weight, too.
StoredFormat integers_of(double bits, std::int64_t group_size, double scale_bytes = 2,
                         WeightFormat format = WeightFormat::WeightOnly, bool has_zeros = false);
// A format whose weights take another number of bytes.
StoredFormat with_bytes(WeightFormat format, double bytes);

// -1, an output channel, as 0.
std::int64_t read_group_size(const JsonSection& section, const char* key, std::int64_t otherwise);

// The list under a key; empty if there is none. Throws ConfigError for anything but names.
std::vector<std::string> module_names(const JsonSection& section, const char* key);
// FormatRules::store and leave_plain. They throw ConfigError for a regular expression that is not
// understood; `key` is where the entry stands.
void store_module(const JsonSection& section, const char* key, const std::string& entry,
                  const std::optional<StoredFormat>& format, FormatRules& rules);
void leave_module_plain(const JsonSection& section, const char* key, const std::string& entry,
                        FormatRules& rules);
// The object under a key has an object of numbers for each module; false or null: plain.
void read_modules(const JsonSection& section, const char* key, FormatRules& rules,
                  const std::function<StoredFormat(const JsonSection&)>& read);

[[noreturn]] void fail_unknown(const JsonSection& section, const char* key, const std::string& name,
                               const std::string& allowed);

// A row of a table of formats by their names in files, in lower case.
struct NamedFormat {
  std::string_view name;
  StoredFormat stored;
};

template <class Rows>
std::string row_names(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

// Null: no row has the name.
template <class Rows>
auto find_row(const Rows& rows, std::string_view name) -> decltype(&*std::begin(rows)) {
  const auto found = std::find_if(std::begin(rows), std::end(rows),
                                  [&](const auto& row) { return row.name == name; });
  return found == std::end(rows) ? nullptr : &*found;
}

}  // namespace metronome
