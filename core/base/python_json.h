// SPDX-License-Identifier: Apache-2.0
// JSON as Python's json module reads and writes it: with NaN, Infinity and -Infinity.
#pragma once

#include <string>
#include <string_view>

#include "core/base/json.h"

namespace metronome {

// As Json::parse; those three words are numbers. In a file that somebody wrote, a key that an
// object has twice is a mistake.
Json parse_python_json(std::string_view text, const JsonLimits& limits = {.keys_once = true});

// One line, in which numbers that are not finite are those words. Bytes that are not UTF-8 are
// replaced, and keys sorted.
std::string python_json_line(const Json& json);

}  // namespace metronome
