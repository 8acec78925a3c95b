// Names and texts of users in messages: made printable, listed, and the nearest one found.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace metronome {

// The text with control characters and bytes that are no UTF-8 as \xNN, so that it neither breaks
// a line nor drives a terminal, and any reader of UTF-8 takes it.
std::string printable(std::string_view text);

// "a, b, c".
std::string join_names(std::span<const std::string_view> names);

// The only one of `names` that begins with `word` (three letters or more), else the nearest one by
// edit distance; empty when none is close.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names);

// `, did you mean 'x'?` for the known word nearest to `word`, or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace metronome
