// SPDX-License-Identifier: Apache-2.0
// Reads the values of a JSON object of a published config file, and names the key in errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/python_json.h"
#include "core/model/config_keys.h"

namespace metronome {

// A null value counts as absent; transformers does the same for all but a few keys (see has). A
// value of another type than a function's name says throws ConfigError, and so does a missing
// value that is required.
class JsonSection {
 public:
  JsonSection(const Json& object, std::string path, std::string prefix)
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

  [[noreturn]] void fail(std::string_view key, const std::string& message) const {
    throw ConfigError(path_ + ": " + prefix_ + std::string(key) + ": " + message);
  }

  const Json* find(const char* key) const {
    const Json* found = object_.find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  // Whether the key exists; a null value counts.
  bool has(const char* key) const { return object_.contains(key); }

  std::optional<std::int64_t> integer(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    // Prevents overflow; shape_error() checks the real limits.
    constexpr std::int64_t kMax = std::int64_t{1} << 40;
    const bool is_in_range = value->is_number_unsigned()
                                 ? value->get<std::uint64_t>() <= std::uint64_t{kMax}
                                 : value->is_number_integer() && value->get<std::int64_t>() >= 0;
    if (!is_in_range) {
      fail(key, value->is_number_integer()
                    ? excerpt(*value) + " is out of range; allowed: " + range_of(key)
                    : "must be an integer, got " + excerpt(*value) + "; allowed: " + range_of(key));
    }
    return value->get<std::int64_t>();
  }

  std::int64_t required_integer(const char* key) const {
    const std::optional<std::int64_t> value = integer(key);
    if (!value) fail_absent(key, range_of(key));
    return *value;
  }

  // For a key that find() does not find.
  [[noreturn]] void fail_absent(const char* key, const std::string& allowed) const {
    fail(key, (has(key) ? "is null; allowed: " : "is missing; allowed: ") + allowed);
  }

  std::int64_t integer_or(const char* key, std::int64_t otherwise) const {
    return integer(key).value_or(otherwise);
  }

  double number_or(const char* key, double otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    // shape_error() checks the limits.
    if (!value->is_number()) {
      fail(key, "must be a number, got " + excerpt(*value) + "; allowed: a number");
    }
    return value->get<double>();
  }

  double required_number(const char* key) const {
    if (find(key) == nullptr) fail_absent(key, "a number");
    return number_or(key, 0);
  }

  bool boolean_or(const char* key, bool otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
      fail(key, "must be true or false, got " + excerpt(*value) + "; allowed: true, false");
    }
    return value->get<bool>();
  }

  std::string text_or(const char* key, const std::string& otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string())
      fail(key, "must be a string, got " + excerpt(*value) + "; allowed: a string");
    return value->get<std::string>();
  }

  // The list under a key with an entry for each layer; null if there is none. `allowed` says the
  // values of an entry.
  const Json* layer_list(const char* key, std::int64_t n_layers, const char* allowed) const {
    const Json* const list = find(key);
    if (list != nullptr &&
        (!list->is_array() || static_cast<std::int64_t>(list->size()) != n_layers)) {
      fail(key, "is not a list with one entry per layer; allowed: " + std::to_string(n_layers) +
                    " times " + allowed);
    }
    return list;
  }

  // A token id or a list of them; empty if there is none.
  std::vector<std::int32_t> token_ids(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    std::vector<std::int32_t> ids;
    for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
      constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
      if (!item.is_number_unsigned() || item.get<std::uint64_t>() > std::uint64_t{kMax}) {
        fail(key, "must be a token id or a list of them, got " + excerpt(*value) +
                      "; allowed: 0 to 2^31 - 1");
      }
      ids.push_back(item.get<std::int32_t>());
    }
    return ids;
  }

  std::optional<JsonSection> section(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) {
      fail(key, "must be an object, got " + excerpt(*value) + "; allowed: an object");
    }
    return JsonSection(*value, path_, prefix_ + key + ".");
  }

  JsonSection required_section(const char* key) const {
    std::optional<JsonSection> found = section(key);
    if (!found) fail_absent(key, "an object");
    return *found;
  }

  // An object of a list.
  JsonSection element(const char* key, std::size_t index) const {
    const Json& value = (*find(key))[index];
    const std::string place = std::string(key) + "[" + std::to_string(index) + "]";
    if (!value.is_object()) {
      fail(place, "must be an object, got " + excerpt(value) + "; allowed: an object");
    }
    return JsonSection(value, path_, prefix_ + place + ".");
  }

  // In the order of the file.
  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (const Json::Member& member : object_.items()) names.push_back(member.key);
    return names;
  }

  std::string dotted(const char* key) const { return prefix_ + key; }

  static std::string excerpt(const Json& value) {
    constexpr std::size_t kMaxShown = 40;
    std::string text = python_json_line(value);
    if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
    return text;
  }

 private:
  std::string range_of(const char* key) const {
    const std::optional<IntegerRange> range = config_key_range(prefix_ + key);
    return range ? std::to_string(range->min) + " to " + std::to_string(range->max) : "0 to 2^40";
  }

  const Json& object_;
  std::string path_;
  std::string prefix_;
};

}  // namespace metronome
