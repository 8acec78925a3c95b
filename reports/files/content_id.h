// SPDX-License-Identifier: Apache-2.0
// The fingerprint of a text, and of result files, which carry their own.
#pragma once

#include <string>
#include <string_view>

namespace metronome {

// The name-based UUID of a text (version 5, SHA-1: RFC 9562), as 32 hexadecimal digits.
std::string content_id_text(std::string_view text);

// The last key of result.json: content_id_text() of everything before its line.
constexpr std::string_view kContentIdKey = "content_id";

// Whether result.json is as it was written: it ends with the content_id of what stands before it.
bool has_own_content_id(std::string_view result_json);

}  // namespace metronome
