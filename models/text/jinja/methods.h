// SPDX-License-Identifier: Apache-2.0
// Attributes and methods of values.
#pragma once

#include <optional>
#include <string_view>

#include "models/text/jinja/arguments.h"
#include "models/text/jinja/value.h"

namespace metronome::jinja {

// The value of Python's getattr(); nullopt: no such attribute. Names that jinja2's immutable
// sandbox forbids, such as list.append, give an undefined value whose use is an error.
std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name);

// The method of a text; nullptr: none of this name.
Callable text_method(std::string_view name);

// Whether Python has a method of this name that no value here has.
bool is_missing_method(std::string_view name);

// str.split() and str.rsplit(). separator nullptr: white space. max < 0: no limit.
std::vector<Value> split_text(Runtime& runtime, std::string_view text, const std::string* separator,
                              std::int64_t max);
std::string replaced(Runtime& runtime, std::string_view text, std::string_view old_part,
                     std::string_view new_part, std::int64_t max);
std::string joined_texts(Runtime& runtime, std::string_view separator,
                         const std::vector<std::string>& texts);

}  // namespace metronome::jinja
