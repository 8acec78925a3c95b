// SPDX-License-Identifier: Apache-2.0
#include "models/text/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/error.h"

namespace metronome {
namespace {

// The sequence that a first byte starts (Unicode Standard, table 3-7).
struct Lead {
  std::size_t num_bytes = 0;  // 0: invalid first byte
  unsigned min_second = 0x80;
  unsigned max_second = 0xbf;
  unsigned bits = 0;  // of the code point
};

constexpr Lead lead_of(unsigned byte) {
  if (byte < 0x80) return {1, 0x80, 0xbf, byte};
  if (byte < 0xc2) return {};
  if (byte < 0xe0) return {2, 0x80, 0xbf, byte & 0x1f};
  if (byte == 0xe0) return {3, 0xa0, 0xbf, 0};
  if (byte == 0xed) return {3, 0x80, 0x9f, 0xd};
  if (byte < 0xf0) return {3, 0x80, 0xbf, byte & 0xf};
  if (byte == 0xf0) return {4, 0x90, 0xbf, 0};
  if (byte < 0xf4) return {4, 0x80, 0xbf, byte & 0x7};
  if (byte == 0xf4) return {4, 0x80, 0x8f, 4};
  return {};
}

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

Utf8Char read_utf8(std::string_view text) {
  const Lead lead = lead_of(byte_at(text, 0));
  if (lead.num_bytes == 0) return {};
  char32_t code_point = lead.bits;
  for (std::size_t i = 1; i < lead.num_bytes; ++i) {
    if (i == text.size()) return {0xfffd, i, false, true};
    const unsigned byte = byte_at(text, i);
    const unsigned min = i == 1 ? lead.min_second : 0x80;
    const unsigned max = i == 1 ? lead.max_second : 0xbf;
    if (byte < min || byte > max) return {0xfffd, i, false, false};
    code_point = code_point << 6 | (byte & 0x3f);
  }
  return {code_point, lead.num_bytes, true, false};
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto add = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xc0 | code_point >> 6);
    add(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    add(0xe0 | code_point >> 12);
    add(0x80 | (code_point >> 6 & 0x3f));
    add(0x80 | (code_point & 0x3f));
  } else {
    add(0xf0 | code_point >> 18);
    add(0x80 | (code_point >> 12 & 0x3f));
    add(0x80 | (code_point >> 6 & 0x3f));
    add(0x80 | (code_point & 0x3f));
  }
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char next = read_utf8(text);
    if (!next.is_valid) return false;
    text.remove_prefix(next.num_bytes);
  }
  return true;
}

void append_replaced(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const Utf8Char next = read_utf8(bytes);
    out += next.is_valid ? bytes.substr(0, next.num_bytes) : kReplacementCharacter;
    bytes.remove_prefix(next.num_bytes);
  }
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default:
      // Joiners, and the symbols that are alphabetic: circled and squared letters.
      return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
             (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
             (c >= 0x1f170 && c <= 0x1f189);
  }
}

std::string to_nfc(std::string_view text) {
  // Characters below U+0300, whose first byte is 0xcc, do not change.
  if (std::none_of(text.begin(), text.end(),
                   [](char c) { return static_cast<unsigned char>(c) >= 0xcc; })) {
    return std::string(text);
  }
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto order_of = [](utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
  };
  // Not utf8proc_map, which sorts marks in quadratic time.
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = read_utf8(text);
    text.remove_prefix(next.num_bytes);
    std::array<utf8proc_int32_t, 8> parts{};
    int boundary = UTF8PROC_BOUNDCLASS_START;
    const utf8proc_ssize_t num_parts =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code_point), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    METRONOME_CHECK(num_parts >= 0 && num_parts <= std::ssize(parts), "a character has few parts");
    characters.insert(characters.end(), parts.begin(), parts.begin() + num_parts);
  }
  for (auto begin = characters.begin(); begin != characters.end(); ++begin) {
    if (order_of(*begin) == 0) continue;
    const auto end =
        std::find_if(begin, characters.end(), [&](auto c) { return order_of(c) == 0; });
    std::stable_sort(begin, end, [&](auto a, auto b) { return order_of(a) < order_of(b); });
    begin = end - 1;
  }
  const utf8proc_ssize_t num = utf8proc_normalize_utf32(
      characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), options);
  METRONOME_CHECK(num >= 0, utf8proc_errmsg(num));
  std::string result;
  for (utf8proc_ssize_t i = 0; i < num; ++i) {
    append_utf8(static_cast<char32_t>(characters[static_cast<std::size_t>(i)]), result);
  }
  return result;
}

}  // namespace metronome
