// SPDX-License-Identifier: Apache-2.0
#include "core/base/base64.h"

#include <array>
#include <cstdint>

namespace metronome {
namespace {

constexpr std::uint8_t kNoDigit = 64;

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::array<std::uint8_t, 256> make_digits() {
  std::array<std::uint8_t, 256> digits;
  digits.fill(kNoDigit);
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    digits[static_cast<unsigned char>(kDigits[i])] = static_cast<std::uint8_t>(i);
  }
  return digits;
}

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (num_bits += 8; num_bits >= 6; num_bits -= 6) {
      text += kDigits[bits >> (num_bits - 6) & 63];
    }
  }
  if (num_bits > 0) text += kDigits[bits << (6 - num_bits) & 63];
  while (text.size() % 4 != 0) text += '=';
  return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  static const std::array<std::uint8_t, 256> digits = make_digits();
  if (text.size() % 4 == 0) {
    for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const std::uint8_t digit = digits[static_cast<unsigned char>(c)];
    if (digit == kNoDigit) return std::nullopt;
    bits = bits << 6 | digit;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits & 0xff);
  }
  return bytes;
}

std::string data_url(std::string_view media_type, std::string_view bytes) {
  return "data:" + std::string(media_type) + ";base64," + encode_base64(bytes);
}

std::optional<std::string_view> base64_of_url(std::string_view url) {
  const std::size_t comma = url.find(',');
  const bool is_base64 =
      url.starts_with("data:") && comma != url.npos && url.substr(0, comma).ends_with(";base64");
  return is_base64 ? std::optional(url.substr(comma + 1)) : std::nullopt;
}

}  // namespace metronome
