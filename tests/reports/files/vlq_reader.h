// SPDX-License-Identifier: Apache-2.0
// Reads back what VlqText wrote, written apart from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metronome::testing {

inline std::vector<std::int64_t> read_vlq(const std::string& text, bool is_delta = false) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::int64_t> numbers;
  std::uint64_t bits = 0;
  int shift = 0;
  std::int64_t last = 0;
  for (const char c : text) {
    const auto digit = static_cast<std::uint64_t>(digits.find(c));
    bits |= (digit % 32) << shift;
    shift += 5;
    if (digit >= 32) continue;
    const auto size = static_cast<std::int64_t>(bits / 2);
    const std::int64_t number = bits % 2 == 1 ? -size : size;
    last = is_delta ? last + number : number;
    numbers.push_back(last);
    bits = 0;
    shift = 0;
  }
  return numbers;
}

}  // namespace metronome::testing
