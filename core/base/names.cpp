// SPDX-License-Identifier: Apache-2.0
#include "core/base/names.h"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>
#include <utility>
#include <vector>

namespace metronome {
namespace {

// Methods and types that other programs name, and what settings here call them.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"awq", "int4"},          {"awq_marlin", "int4"},    {"gptq", "int4"},
    {"gptq_marlin", "int4"},  {"bitsandbytes", "int4"},  {"nf4", "int4"},
    {"fp4", "nvfp4"},         {"modelopt_fp4", "nvfp4"}, {"modelopt", "fp8"},
    {"fbgemm_fp8", "fp8"},    {"float8", "fp8"},         {"bfloat16", "bf16"},
    {"float8_e4m3fn", "fp8"}, {"bf16", "none"},          {"float16", "none"},
    {"fp16", "none"},         {"f16", "none"},           {"half", "none"},
    {"fp32", "none"},         {"float32", "none"},       {"int8", "fp8"},
    {"w8a8_int8", "fp8"},     {"w8a16", "fp8"},          {"bnb8", "fp8"},
    {"bnb", "int4"},          {"marlin", "int4"},        {"w4a16", "int4"},
    {"w8a8", "fp8"},          {"w8a8_fp8", "fp8"},       {"fp4_e2m1", "nvfp4"},
};

// Letters to insert, leave out or replace, and neighbours to exchange.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);  // the row above the last one
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substituted, last[j] + 1, row[j - 1] + 1});
      const bool is_exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_exchanged) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The numbers of a name, each behind a space: "llama-3.2-3b" gives " 3 2 3".
std::string numbers_of(std::string_view name) {
  std::string numbers;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (!is_digit(name[i])) continue;
    if (i == 0 || !is_digit(name[i - 1])) numbers += ' ';
    numbers += name[i];
  }
  return numbers;
}

// The letters of a name, in lower case.
std::string letters_of(std::string_view name) {
  std::string letters = lower_ascii(name);
  std::erase_if(letters, [](char c) { return c < 'a' || c > 'z'; });
  return letters;
}

// The byte length of the printable UTF-8 character at the start of `text`; 0 if there is none. The
// ranges of the second byte exclude overlong forms, surrogates, and U+0080 to U+009F, which are
// control characters (Unicode 15, table 3-7).
std::size_t printable_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  const unsigned char low = first == 0xc2 || first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
  }
  return length;
}

}  // namespace

std::size_t bidi_control_length(std::string_view text) {
  const auto is_at = [text](std::string_view low, unsigned char first, unsigned char last) {
    const std::size_t size = low.size();
    if (text.size() <= size || text.substr(0, size) != low) return false;
    const auto byte = static_cast<unsigned char>(text[size]);
    return byte >= first && byte <= last;
  };
  if (is_at("\xd8", 0x9c, 0x9c)) return 2;  // U+061C
  // U+200E, U+200F; U+202A to U+202E; U+2066 to U+2069
  const bool is_long = is_at("\xe2\x80", 0x8e, 0x8f) || is_at("\xe2\x80", 0xaa, 0xae) ||
                       is_at("\xe2\x81", 0xa6, 0xa9);
  return is_long ? 3 : 0;
}

std::string printable(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    const std::size_t length = bidi_control_length(text) > 0 ? 0 : printable_length(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (length > 0) {
      out += text.substr(0, length);
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else {
      out += fmt::format("\\x{}{}", kHex[byte >> 4], kHex[byte & 15]);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string lower_ascii(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

std::string join_names(std::span<const std::string_view> names) {
  std::string joined;
  for (const std::string_view name : names) {
    if (!joined.empty()) joined += ", ";
    joined += name;
  }
  return joined;
}

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names) {
  const std::string lower = lower_ascii(word);
  for (const std::string_view name : names) {
    if (lower == lower_ascii(name)) return name;
  }
  for (const auto& [other, name] : kOtherWords) {
    if (lower == other && std::find(names.begin(), names.end(), name) != names.end()) return name;
  }
  const auto continues = [&lower](std::string_view name) {
    return lower_ascii(name).starts_with(lower);
  };
  if (word.size() >= 3 && std::count_if(names.begin(), names.end(), continues) == 1) {
    return *std::find_if(names.begin(), names.end(), continues);
  }
  // Up to about a third of the letters may be wrong. With more, or all, it is a different word.
  std::size_t best_distance = std::min((word.size() + 2) / 3 + 1, word.size());
  std::string_view best;
  const auto consider = [&](std::string_view part, std::string_view name) {
    const std::size_t longer = std::max(lower.size(), part.size());
    if (longer - std::min(lower.size(), part.size()) >= best_distance) return;
    const std::size_t distance = edit_distance(lower, lower_ascii(part));
    if (distance >= best_distance) return;
    best_distance = distance;
    best = name;
  };
  for (const std::string_view name : names) consider(name, name);
  // "h1000" is nearer to "h100-sxm" than to "h200": its first part names a thing of its own.
  constexpr std::size_t kShortest = 4;
  for (const std::string_view name : names) {
    const std::string_view first = name.substr(0, name.find('-'));
    const bool has_digit = first.find_first_of("0123456789") != first.npos;
    if (first.size() >= kShortest && has_digit) consider(first, name);
  }
  if (!best.empty()) return best;
  // "fp8_e4m3" is a kind of "fp8".
  for (const std::string_view name : names) {
    const bool is_of_name = word.size() > name.size() && lower.starts_with(lower_ascii(name)) &&
                            (word[name.size()] == '_' || word[name.size()] == '-');
    if (name.size() >= 3 && is_of_name && name.size() > best.size()) best = name;
  }
  return best;
}

std::string_view nearest_numbered_name(std::string_view word,
                                       std::span<const std::string_view> names) {
  const std::string numbers = numbers_of(word);
  const std::string letters = letters_of(word);
  std::string_view best;
  std::size_t best_distance = letters.size();
  for (const std::string_view name : names) {
    if (numbers_of(name) != numbers) continue;
    const std::string other = letters_of(name);
    const std::size_t distance = edit_distance(letters, other);
    // One of three letters may be wrong, and two of twelve: "qwen2.5-vl-7b" is no "qwen2.5-7b".
    const bool is_near = 3 * distance * distance <= std::max(letters.size(), other.size());
    if (!is_near || (distance >= best_distance && !best.empty())) continue;
    best_distance = distance;
    best = name;
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view nearest = nearest_name(word, known);
  if (nearest.empty()) return {};
  return ", did you mean '" + std::string(nearest) + "'?";
}

}  // namespace metronome
