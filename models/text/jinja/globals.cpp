// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/globals.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <string>

namespace metronome::jinja {
namespace {

// Entries of a dictionary, from a dictionary or from pairs.
void add_entries(Runtime& runtime, const Value& from, Dict& dict) {
  if (from.is(Kind::Dict)) {
    for (const auto& [key, value] : from.as<Dict>().entries()) dict.set(key, value);
    return;
  }
  for (const Value& entry : entries_of(runtime, from)) {
    const std::vector<Value> pair = entries_of(runtime, entry);
    if (pair.size() != 2) fail("dictionary update sequence element is not a pair");
    dict.set(pair[0], pair[1]);
  }
}

std::shared_ptr<Dict> dict_of(Runtime& runtime, Arguments& arguments) {
  const std::shared_ptr<Dict> made = runtime.dict();
  if (arguments.positional.size() > 1) fail("dict expected at most 1 argument");
  if (!arguments.positional.empty()) add_entries(runtime, arguments.positional[0], *made);
  for (const auto& [name, value] : arguments.named) made->set(runtime.text(name), value);
  return made;
}

constexpr std::int64_t kMaxRangeEnd = 1'000'000'000'000'000;

}  // namespace

Value call_range(Runtime& runtime, const Value&, Arguments& arguments) {
  std::array<std::int64_t, 3> numbers{0, 0, 1};
  const std::vector<Value>& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) {
    fail(fmt::format("range expected 1 to 3 arguments, got {}", given.size()));
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    require_defined(given[i]);
    if (!given[i].is_integral()) {
      fail("'" + std::string(type_name(given[i])) + "' object cannot be interpreted as an integer");
    }
    numbers[given.size() == 1 ? 1 : i] = given[i].integer();
    if (given[i].integer() > kMaxRangeEnd || given[i].integer() < -kMaxRangeEnd) {
      fail("a number of a range is too large; allowed: up to 1e15");
    }
  }
  if (numbers[2] == 0) fail("range() arg 3 must not be zero");
  const auto made = std::make_shared<Range>(&runtime.meter(), numbers[0], numbers[1], numbers[2]);
  if (made->size() > kMaxRange) {
    fail(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                     kMaxRange));
  }
  return Value(Kind::Range, made);
}

Value call_dict(Runtime& runtime, const Value&, Arguments& arguments) {
  return Value(Kind::Dict, dict_of(runtime, arguments));
}

Value call_namespace(Runtime& runtime, const Value&, Arguments& arguments) {
  const std::shared_ptr<Namespace> made = runtime.make_namespace();
  const std::shared_ptr<Dict> given = dict_of(runtime, arguments);
  for (const auto& [key, value] : given->entries()) {
    if (!key.is_string()) fail("an attribute of a namespace must be a text");
    if (key.text().starts_with('_')) {
      fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got " +
           to_repr(runtime, key) + ". Please rename the attribute.");
    }
    made->attributes[key.text()] = value;
  }
  return Value(Kind::Namespace, made);
}

Value call_raise_exception(Runtime& runtime, const Value&, Arguments& arguments) {
  arguments.bind("raise_exception", {"message"}, 1);
  throw RenderError(to_text(runtime, arguments.at(0)), true);
}

Value time_value(Runtime& runtime, const std::tm& time) {
  std::vector<Value> fields;
  for (const int field : {time.tm_sec, time.tm_min, time.tm_hour, time.tm_mday, time.tm_mon,
                          time.tm_year, time.tm_wday, time.tm_yday}) {
    fields.emplace_back(std::int64_t{field});
  }
  return runtime.tuple(std::move(fields));
}

Value call_strftime_now(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("strftime_now", {"format"}, 1);
  const std::string format = arguments.text(0);
  std::tm time{};
  const auto& fields = self.as<List>().entries;
  int* const members[] = {&time.tm_sec, &time.tm_min,  &time.tm_hour, &time.tm_mday,
                          &time.tm_mon, &time.tm_year, &time.tm_wday, &time.tm_yday};
  for (std::size_t i = 0; i < std::size(members); ++i) {
    *members[i] = static_cast<int>(fields[i].integer());
  }
  constexpr std::size_t kMaxFormat = 256;
  if (format.size() > kMaxFormat) fail("strftime_now: the format is too long; allowed: 256 bytes");
  // Widths as in %100Y would make long texts; a mark at the end tells an empty text from a long
  // one.
  std::array<char, 8192> buffer{};
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), (format + "|").c_str(), &time);
  if (size == 0) fail("strftime_now: the text of the time is too long");
  return runtime.text(std::string(buffer.data(), size - 1));
}

}  // namespace metronome::jinja
