// SPDX-License-Identifier: Apache-2.0
// The tests of Jinja: `value is NAME`.
#pragma once

#include <string>
#include <string_view>

#include "models/text/jinja/arguments.h"
#include "models/text/jinja/value.h"

namespace metronome::jinja {

using ValueTest = bool (*)(Runtime& runtime, const Value& value, Arguments& arguments);

// nullptr: no such test.
ValueTest find_test(std::string_view name);
std::string test_names();

}  // namespace metronome::jinja
