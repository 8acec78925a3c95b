// SPDX-License-Identifier: Apache-2.0
// Limits how much of a user's text a message repeats.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace metronome {

constexpr std::size_t kMaxQuoted = 60;  // bytes of one text

// The text, or its first kMaxQuoted bytes and "...". No character is cut.
std::string clipped(std::string_view text);

// The message with at most 4 KiB. A word without a blank and with more than 300 bytes is clipped:
// users' keys and values are as long as they like. Paths are mostly shorter, and stay whole.
std::string bounded_message(std::string_view message);

}  // namespace metronome
