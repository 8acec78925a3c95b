// SPDX-License-Identifier: Apache-2.0
// The filters of Jinja, with transformers' tojson, and from_json and methods as llama.cpp has them.
#pragma once

#include <string>
#include <string_view>

#include "models/text/jinja/arguments.h"
#include "models/text/jinja/value.h"

namespace metronome::jinja {

// nullptr: no such filter, or one that is not supported.
Callable find_filter(std::string_view name);
// The filters of texts and numbers, and the filters of sequences.
Callable find_scalar_filter(std::string_view name);
Callable find_sequence_filter(std::string_view name);
std::string filter_names();

// Python's json.dumps. Throws RenderError for what has no JSON.
struct JsonForm {
  bool escapes_non_ascii = false;
  bool is_indented = false;
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sorts_keys = false;
};
std::string json_text(Runtime& runtime, const Value& value, const JsonForm& form);

// The value at an attribute "a.b.0" or a number, as map, selectattr, sort and others look it up.
Value looked_up(Runtime& runtime, Value value, const Value& attribute);

}  // namespace metronome::jinja
