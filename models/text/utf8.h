// SPDX-License-Identifier: Apache-2.0
// Reads UTF-8 one character at a time and replaces malformed bytes in the standard way.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace metronome {

// The replacement for malformed bytes: U+FFFD.
constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

// The byte as an index of a table.
constexpr std::size_t byte_of(char c) { return static_cast<unsigned char>(c); }

// The first character of a text. Malformed bytes count as one character per maximal subpart
// (Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"). Python's
// errors="replace" and the WHATWG decoder do the same.
struct Utf8Char {
  char32_t code_point = 0xfffd;
  std::size_t num_bytes = 1;
  bool is_valid = false;
  bool is_cut = false;  // malformed only because the text ends here
};

// `text` is not empty.
Utf8Char read_utf8(std::string_view text);

void append_utf8(char32_t code_point, std::string& out);

bool is_utf8(std::string_view text);

// Appends `bytes`, with U+FFFD for malformed parts.
void append_replaced(std::string_view bytes, std::string& out);

// Unicode's property White_Space.
bool is_white_space(char32_t code_point);

// Whether \w matches in Unicode's regular expressions (UTS #18, annex C): letters, marks, decimal
// digits, connectors.
bool is_word_character(char32_t code_point);

// Canonical composition (UAX #15). `text` is UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace metronome
