// SPDX-License-Identifier: Apache-2.0
// Operators of expressions, with Python's results.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/text/jinja/value.h"

namespace metronome::jinja {

enum class Operator : std::uint8_t {
  Add,
  Subtract,
  Multiply,
  Divide,
  FloorDivide,
  Remainder,
  Power,
  Equal,
  NotEqual,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  In,
  NotIn
};

// All throw RenderError for types that the operator does not have, and for integers beyond 64 bits.
Value arithmetic(Runtime& runtime, Operator op, const Value& left, const Value& right);
bool compare(Runtime& runtime, Operator op, const Value& left, const Value& right);
Value negative(const Value& value);
Value positive(const Value& value);
// Python's `value in container`.
bool contains(Runtime& runtime, const Value& container, const Value& value);

// Jinja's object[key], object.name and Python's object[start:stop:step]: an undefined value where
// there is none. nullptr: a bound of a slice that is left out.
Value item_of(Runtime& runtime, const Value& object, const Value& key);
Value attribute_of(Runtime& runtime, const Value& object, std::string_view name);
Value slice_of(Runtime& runtime, const Value& object, const Value* start, const Value* stop,
               const Value* step);

// text % values, Python's printf-style format.
std::string printf_text(Runtime& runtime, const std::string& format, const Value& values);

// The text with the characters & < > ' " as HTML's entities.
std::string escaped_html(std::string_view text);

}  // namespace metronome::jinja
