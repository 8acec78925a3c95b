// SPDX-License-Identifier: Apache-2.0
// Reads parts of log lines: numbers, times, "name: value" lists and Python's arguments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/number_chars.h"

namespace metronome {

// Parses a line from left to right.
class LineReader {
 public:
  explicit LineReader(std::string_view rest) : rest_(rest) {}

  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  // A number that is not negative.
  template <class Number>
  bool read_number(Number& number) {
    const auto [end, error] =
        metronome::read_number(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc() || !(number >= 0)) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// The number that is the whole text; nullopt: it is none.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const auto [end, error] = read_number(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The line without the colours of a terminal and without a carriage return at its end.
std::string plain_line(std::string_view line);

// The last time of day in `prefix`, "12:00:03" or "12:00:03.123"; empty if there is none.
std::string time_in(std::string_view prefix);
// Seconds since midnight of such a time.
std::optional<double> seconds_of(std::string_view time);
// From one such time to the next, within a day; nullopt if one of them is none.
std::optional<double> seconds_between(std::string_view before, std::string_view after);

// The values of "name: value, name: value". A value goes to the next ", ".
class LogFields {
 public:
  explicit LogFields(std::string_view text);

  bool has(std::string_view name) const { return fields_.contains(name); }
  // Whether the field is there and begins with a number in [0, 1e15], with nothing but `unit`
  // and no letter behind it.
  bool read(std::string_view name, double& number, std::string_view unit = {}) const;
  // Whether the field is there and is a count: an integer below 2^31.
  bool read(std::string_view name, std::int64_t& count) const;
  const std::map<std::string, std::string, std::less<>>& all() const { return fields_; }

 private:
  std::map<std::string, std::string, std::less<>> fields_;
};

// The items of Python's `{'a': 1, 'b': [2]}` or `Name(a=1, b=[2])` at the start of `text`: values
// as written, texts without their quotes. nullopt if the brackets do not close.
std::optional<std::map<std::string, std::string>> python_arguments(std::string_view text);

}  // namespace metronome
