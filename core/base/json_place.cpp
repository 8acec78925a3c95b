// SPDX-License-Identifier: Apache-2.0
#include "core/base/json_place.h"

#include <cmath>
#include <fmt/core.h>
#include <fstream>
#include <limits>

#include "core/base/clip.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/python_json.h"

namespace metronome {

void JsonPlace::fail(const std::string& message) const {
  throw ConfigError(where_ + ": " + printable(message));
}

JsonPlace JsonPlace::at(const std::string& key) const {
  const Json* value = json_->find(key);
  if (value == nullptr) {
    throw ConfigError(where_ + ": " + key + ": is missing; allowed: a complete file");
  }
  return JsonPlace(where_ + ": " + key, *value);
}

bool JsonPlace::has(const std::string& key) const { return json_->contains(key); }

JsonPlace JsonPlace::item(std::size_t index) const {
  const std::string where = fmt::format("{}[{}]", where_, index);
  if (!json_->is_array() || index >= json_->size()) {
    throw ConfigError(where + ": is missing; allowed: a list with so many entries");
  }
  return JsonPlace(where, json_->at(index));
}

bool JsonPlace::is_null() const { return json_->is_null(); }

std::int64_t JsonPlace::integer(std::int64_t min, std::int64_t max) const {
  if (!json_->is_number_integer()) {
    fail(fmt::format("is not a whole number; allowed: {} to {}", min, max));
  }
  const auto number = json_->get<std::int64_t>();
  if (number < min || number > max) {
    fail(fmt::format("{} is out of range; allowed: {} to {}", number, min, max));
  }
  return number;
}

std::int32_t JsonPlace::count() const {
  return static_cast<std::int32_t>(integer(0, std::numeric_limits<std::int32_t>::max()));
}

double JsonPlace::number() const {
  if (!json_->is_number()) fail("is not a number; allowed: a number");
  const auto value = json_->get<double>();
  if (!std::isfinite(value)) {
    fail("is " + python_json_line(*json_) + "; allowed: a finite number");
  }
  return value;
}

double JsonPlace::number(double min, double max) const {
  const double value = number();
  if (!(value >= min && value <= max)) {
    fail(json_->dump() + " is out of range; allowed: " + Json(min).dump() + " to " +
         Json(max).dump());
  }
  return value;
}

TimeNs JsonPlace::seconds() const {
  return std::llround(number(0, kMaxSeconds) * static_cast<double>(kNsPerSecond));
}

std::string JsonPlace::text() const {
  if (!json_->is_string()) fail("is not a string; allowed: a string");
  return json_->get<std::string>();
}

bool JsonPlace::truth() const {
  if (!json_->is_boolean()) fail("is not a boolean; allowed: true, false");
  return json_->get<bool>();
}

void JsonPlace::for_each(const std::function<void(const JsonPlace&)>& visit) const {
  if (!json_->is_array()) fail("is not a list; allowed: a list");
  std::size_t i = 0;
  for (const Json& entry : *json_) {
    visit(JsonPlace(fmt::format("{}[{}]", where_, i++), entry));
  }
}

std::vector<std::int32_t> JsonPlace::counts(std::size_t size) const {
  std::vector<std::int32_t> numbers;
  for_each([&](const JsonPlace& entry) { numbers.push_back(entry.count()); });
  if (numbers.size() != size) {
    fail(fmt::format("has {} numbers; allowed: {}", numbers.size(), size));
  }
  return numbers;
}

void refuse_key_twice(const JsonError& error, const std::string& where) {
  if (error.reason() != JsonError::Reason::KeyTwice) return;
  throw ConfigError(where + ": " + printable(clipped(error.key())) +
                    ": appears twice; allowed: every key once");
}

Json parse_json(const std::string& text, const std::string& where) {
  try {
    return parse_python_json(text);
  } catch (const JsonError& error) {
    refuse_key_twice(error, where);
    throw ConfigError(where + ": is not JSON: " + printable(error.what()) + "; allowed: JSON");
  }
}

Json read_json_file(const std::string& path, const std::string& allowed) {
  return parse_json(read_file(path, allowed), path);
}

void for_each_json_line(const std::string& path, const std::string& allowed,
                        const std::function<void(const JsonPlace&, std::size_t)>& visit) {
  std::ifstream file = open_input(path, allowed);
  std::string line;
  for (std::size_t i = 0; next_line(file, line); ++i) {
    const std::string where = fmt::format("{}:{}", path, i + 1);
    const Json json = parse_json(line, where);
    visit(JsonPlace(where, json), i);
  }
  if (file.bad()) fail_input(path, allowed);
}

}  // namespace metronome
