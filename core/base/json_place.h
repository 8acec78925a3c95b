// SPDX-License-Identifier: Apache-2.0
// Reads JSON files; errors say where in the file something is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/types.h"

namespace metronome {

constexpr double kMaxSeconds = 1e9;  // largest time in a file; it fits into nanoseconds

// A value inside a file, together with its location. Every accessor throws ConfigError when the
// value is not of the requested type or range.
class JsonPlace {
 public:
  JsonPlace(std::string where, const Json& json) : where_(std::move(where)), json_(&json) {}

  [[noreturn]] void fail(const std::string& message) const;
  JsonPlace at(const std::string& key) const;
  bool has(const std::string& key) const;
  // Of a list.
  JsonPlace item(std::size_t index) const;
  bool is_null() const;
  const Json& json() const { return *json_; }
  const std::string& where() const { return where_; }

  std::int64_t integer(std::int64_t min, std::int64_t max) const;
  std::int32_t count() const;  // at least 0
  TimeNs time() const { return integer(0, kNever - 1); }
  TimeNs time_or_none() const { return is_null() ? kNoTime : time(); }
  double number() const;                        // finite
  double number(double min, double max) const;  // bounds included
  TimeNs seconds() const;                       // as nanoseconds, from 0 to kMaxSeconds
  std::string text() const;
  std::string text_or_empty() const { return is_null() ? std::string() : text(); }
  bool truth() const;
  // Calls visit(place) for each entry of a list.
  void for_each(const std::function<void(const JsonPlace&)>& visit) const;
  // A list of exactly `size` counts.
  std::vector<std::int32_t> counts(std::size_t size) const;

 private:
  std::string where_;
  const Json* json_;
};

// Throws ConfigError for an error of that kind; else does nothing.
void refuse_key_twice(const JsonError& error, const std::string& where);

// Throws ConfigError that begins with `where`. An object has every key once.
Json parse_json(const std::string& text, const std::string& where);

// Reads a whole JSON file. `allowed` says which file is expected.
Json read_json_file(const std::string& path, const std::string& allowed);

// Calls visit(place, line number from 0) for each line of a JSON Lines file.
void for_each_json_line(const std::string& path, const std::string& allowed,
                        const std::function<void(const JsonPlace&, std::size_t)>& visit);

}  // namespace metronome
