// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>

#include "models/text/utf8.h"

namespace metronome::jinja {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

utf8proc_int32_t as_utf8proc(char32_t c) { return static_cast<utf8proc_int32_t>(c); }

std::vector<char32_t> code_points_of(std::string_view text) {
  std::vector<char32_t> points;
  points.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = read_utf8(text);
    points.push_back(next.code_point);
    text.remove_prefix(next.num_bytes);
  }
  return points;
}

// Upper cases of several characters (Unicode's SpecialCasing.txt).
struct SpecialCase {
  char32_t character;
  std::string_view upper, title;
};
constexpr SpecialCase kSpecialCases[] = {{0xdf, "SS", "Ss"},
                                         {0x149, "\u02bcN", "\u02bcN"},
                                         {0x1f0, "J\u030c", "J\u030c"},
                                         {0x587, "\u0535\u0552", "\u0535\u0582"},
                                         {0x1e96, "H\u0331", "H\u0331"},
                                         {0x1e97, "T\u0308", "T\u0308"},
                                         {0x1e98, "W\u030a", "W\u030a"},
                                         {0x1e99, "Y\u030a", "Y\u030a"},
                                         {0x1e9a, "A\u02be", "A\u02be"},
                                         {0xfb00, "FF", "Ff"},
                                         {0xfb01, "FI", "Fi"},
                                         {0xfb02, "FL", "Fl"},
                                         {0xfb03, "FFI", "Ffi"},
                                         {0xfb04, "FFL", "Ffl"},
                                         {0xfb05, "ST", "St"},
                                         {0xfb06, "ST", "St"}};

const SpecialCase* special_case(char32_t c) {
  const auto* const found = std::find_if(std::begin(kSpecialCases), std::end(kSpecialCases),
                                         [c](const auto& entry) { return entry.character == c; });
  return found == std::end(kSpecialCases) ? nullptr : found;
}

void append_upper(char32_t c, std::string& out) {
  if (const SpecialCase* special = special_case(c)) {
    out += special->upper;
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_toupper(as_utf8proc(c))), out);
  }
}

void append_title(char32_t c, std::string& out) {
  if (const SpecialCase* special = special_case(c)) {
    out += special->title;
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_totitle(as_utf8proc(c))), out);
  }
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_case_ignorable(char32_t c) {
  switch (utf8proc_category(as_utf8proc(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x387 || c == 0x55f ||
             c == 0x5f4 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

// A sigma at the end of a word has a form of its own.
bool is_final_sigma(const std::vector<char32_t>& points, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(points[before - 1])) --before;
  if (before == 0 || !is_cased(points[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < points.size() && is_case_ignorable(points[after])) ++after;
  return after == points.size() || !is_cased(points[after]);
}

void append_lower(const std::vector<char32_t>& points, std::size_t at, std::string& out) {
  const char32_t c = points[at];
  if (c == 0x3a3) {
    append_utf8(is_final_sigma(points, at) ? 0x3c2 : 0x3c3, out);
  } else if (c == 0x130) {
    out += "i\u0307";
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_tolower(as_utf8proc(c))), out);
  }
}

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(as_utf8proc(c)); }

bool is_line_end(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

void append_escape(char32_t c, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const int num_digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += '\\';
  out += num_digits == 2 ? 'x' : num_digits == 4 ? 'u' : 'U';
  for (int i = num_digits - 1; i >= 0; --i) out += kDigits[c >> (4 * i) & 15];
}

}  // namespace

bool is_ascii_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::int64_t num_characters(const Text& text) {
  if (text.is_ascii) return std::ssize(text.bytes);
  return character_of_byte(text, text.bytes.size());
}

std::vector<Value> characters_of(Runtime& runtime, const Text& text) {
  std::vector<Value> characters;
  std::string_view rest = text.bytes;
  while (!rest.empty()) {
    const std::size_t size = read_utf8(rest).num_bytes;
    characters.push_back(runtime.text(std::string(rest.substr(0, size))));
    rest.remove_prefix(size);
  }
  return characters;
}

std::size_t byte_of_character(const Text& text, std::int64_t index) {
  if (text.is_ascii) return static_cast<std::size_t>(index);
  std::size_t byte = 0;
  for (; byte < text.bytes.size(); ++byte) {
    if (!is_continuation(text.bytes[byte]) && index-- == 0) return byte;
  }
  return byte;
}

std::int64_t character_of_byte(const Text& text, std::size_t byte) {
  if (text.is_ascii) return static_cast<std::int64_t>(byte);
  return std::count_if(text.bytes.begin(), text.bytes.begin() + static_cast<std::ptrdiff_t>(byte),
                       [](char c) { return !is_continuation(c); });
}

std::string picked_of(const Text& text, std::int64_t start, std::int64_t step, std::int64_t count) {
  if (count <= 0) return {};
  if (step == 1) {
    const std::size_t begin = byte_of_character(text, start);
    return text.bytes.substr(begin, byte_of_character(text, start + count) - begin);
  }
  std::vector<std::string_view> characters;
  std::string_view rest = text.bytes;
  while (!rest.empty()) {
    const std::size_t size = text.is_ascii ? 1 : read_utf8(rest).num_bytes;
    characters.push_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  std::string result;
  for (std::int64_t i = 0; i < count; ++i) {
    result += characters[static_cast<std::size_t>(start + i * step)];
  }
  return result;
}

bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); }

bool is_printable(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
  }
}

bool is_upper(char32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216f) ||
         (c >= 0x24b6 && c <= 0x24cf) || (c >= 0x1f130 && c <= 0x1f149) ||
         (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool is_lower(char32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_LL || c == 0xaa || c == 0xba ||
         (c >= 0x2b0 && c <= 0x2b8) || (c >= 0x2170 && c <= 0x217f) || (c >= 0x24d0 && c <= 0x24e9);
}

bool is_title(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_LT; }

bool is_letter(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
  }
}

bool is_decimal(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468);
}

bool is_numeric(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return is_digit(c) || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

std::string to_lower(std::string_view text) {
  const std::vector<char32_t> points = code_points_of(text);
  std::string result;
  for (std::size_t i = 0; i < points.size(); ++i) append_lower(points, i, result);
  return result;
}

std::string to_upper(std::string_view text) {
  std::string result;
  for (const char32_t c : code_points_of(text)) append_upper(c, result);
  return result;
}

std::string to_title(std::string_view text) {
  const std::vector<char32_t> points = code_points_of(text);
  std::string result;
  bool is_inside = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    is_inside ? append_lower(points, i, result) : append_title(points[i], result);
    is_inside = is_cased(points[i]);
  }
  return result;
}

std::string capitalized(std::string_view text) {
  const std::vector<char32_t> points = code_points_of(text);
  std::string result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    i > 0 ? append_lower(points, i, result) : append_title(points[i], result);
  }
  return result;
}

std::string swapped_case(std::string_view text) {
  const std::vector<char32_t> points = code_points_of(text);
  std::string result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (is_upper(points[i])) {
      append_lower(points, i, result);
    } else if (is_lower(points[i])) {
      append_upper(points[i], result);
    } else {
      append_utf8(points[i], result);
    }
  }
  return result;
}

std::string_view stripped(std::string_view text, const std::string* removed, bool at_left,
                          bool at_right) {
  const std::vector<char32_t> set = removed ? code_points_of(*removed) : std::vector<char32_t>();
  const auto goes = [&](char32_t c) {
    return removed ? std::find(set.begin(), set.end(), c) != set.end() : is_space(c);
  };
  while (at_left && !text.empty()) {
    const Utf8Char first = read_utf8(text);
    if (!goes(first.code_point)) break;
    text.remove_prefix(first.num_bytes);
  }
  while (at_right && !text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && is_continuation(text[begin])) --begin;
    if (!goes(read_utf8(text.substr(begin)).code_point)) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = read_utf8(text.substr(at));
    const std::size_t end = at;
    at += next.num_bytes;
    if (!is_line_end(next.code_point)) continue;
    if (next.code_point == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, end - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

void append_repr(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  out += quote;
  for (const char32_t c : code_points_of(text)) {
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_utf8(c, out);
    } else {
      append_escape(c, out);
    }
  }
  out += quote;
}

}  // namespace metronome::jinja
