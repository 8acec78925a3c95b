// SPDX-License-Identifier: Apache-2.0
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

// A data: URL (RFC 2397).
std::string data_url(std::string_view media_type, std::string_view bytes);

// The base64 text of a data: URL; nullopt for another URL, or another encoding.
std::optional<std::string_view> base64_of_url(std::string_view url);

}  // namespace metronome
