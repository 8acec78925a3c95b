// SPDX-License-Identifier: Apache-2.0
// Texts by code points, as Python's str has them. Texts are valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/jinja/value.h"

namespace metronome::jinja {

bool is_ascii_text(std::string_view text);
std::int64_t num_characters(const Text& text);
std::vector<Value> characters_of(Runtime& runtime, const Text& text);
// The byte at which a character begins; the text's size for the number of characters.
std::size_t byte_of_character(const Text& text, std::int64_t index);
// The number of characters before a byte.
std::int64_t character_of_byte(const Text& text, std::size_t byte);
// The characters at start, start + step, ...: `count` of them, all within the text.
std::string picked_of(const Text& text, std::int64_t start, std::int64_t step, std::int64_t count);

// str.isspace of one character: what strip() and split() without an argument remove.
bool is_space(char32_t c);
bool is_printable(char32_t c);  // repr() writes it as it is
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_letter(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);    // decimals, and superscripts
bool is_numeric(char32_t c);  // and fractions, and Roman numbers

// str.lower(), upper(), title(), capitalize() and swapcase(). Characters whose upper case is
// several characters are those of Latin and Armenian; others (Greek with iota) keep one.
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string to_title(std::string_view text);
std::string capitalized(std::string_view text);
std::string swapped_case(std::string_view text);

// Removes characters at the left and at the right: spaces, or those in `removed`.
std::string_view stripped(std::string_view text, const std::string* removed, bool at_left,
                          bool at_right);

// str.splitlines() without the line ends.
std::vector<std::string_view> lines_of(std::string_view text);

void append_repr(std::string_view text, std::string& out);

}  // namespace metronome::jinja
