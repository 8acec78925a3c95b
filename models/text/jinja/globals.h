// SPDX-License-Identifier: Apache-2.0
// The functions that every template can call.
#pragma once

#include <ctime>

#include "models/text/jinja/arguments.h"
#include "models/text/jinja/value.h"

namespace metronome::jinja {

Value call_range(Runtime& runtime, const Value& self, Arguments& arguments);
Value call_dict(Runtime& runtime, const Value& self, Arguments& arguments);
Value call_namespace(Runtime& runtime, const Value& self, Arguments& arguments);
Value call_raise_exception(Runtime& runtime, const Value& self, Arguments& arguments);
// self is the time, see time_value().
Value call_strftime_now(Runtime& runtime, const Value& self, Arguments& arguments);

Value time_value(Runtime& runtime, const std::tm& time);

}  // namespace metronome::jinja
