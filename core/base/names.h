// SPDX-License-Identifier: Apache-2.0
// Prints users' names and texts in messages, lists and compares names, and finds the nearest one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace metronome {

// The bytes of the character at the start of the text, if it reorders the text around it (the
// bidirectional controls of Unicode's UAX 9); else 0.
std::size_t bidi_control_length(std::string_view text);

// The text with control characters, bidirectional controls and invalid UTF-8 bytes written as \xNN.
// The result is valid UTF-8, breaks no line and sends no terminal control sequence.
std::string printable(std::string_view text);

// The text with A to Z in lower case.
std::string lower_ascii(std::string_view text);

// "a, b, c".
std::string join_names(std::span<const std::string_view> names);

// The only one of `names` that begins with `word` (three letters or more). Otherwise the nearest by
// edit distance, of the name or its first part, or the longest that `word` goes on from behind a
// `_` or `-`; empty when none is close. Capitals do not count; another program's word goes first.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names);

// The nearest of the names that have the numbers of `word`, in the same order: versions, sizes and
// numbers of models tell things apart, so that one with other numbers was not meant. At most a
// third of the letters may be wrong. Empty: none.
std::string_view nearest_numbered_name(std::string_view word,
                                       std::span<const std::string_view> names);

// `, did you mean 'x'?` for the known word nearest to `word`, or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace metronome
