// Bytes as text, as in data: URLs (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace metronome {

// With padding.
std::string encode_base64(std::string_view bytes);

// nullopt: not base64. Padding may be missing, as browsers allow.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace metronome
