// SPDX-License-Identifier: Apache-2.0
#include "core/base/number_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/base/number_chars.h"

namespace metronome {
namespace {

// Puts commas into the digits before the decimal point.
std::string group(std::string digits) {
  const std::size_t first = !digits.empty() && digits.front() == '-' ? 1 : 0;
  const std::size_t point = std::min(digits.find('.'), digits.size());
  for (std::size_t at = point; at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

// The number of digits from the first to the last nonzero digit.
std::size_t num_significant(std::string digits) {
  std::erase_if(digits, [](char c) { return c < '0' || c > '9'; });
  const std::size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) return 0;
  return digits.find_last_not_of('0') - first + 1;
}

}  // namespace

std::string fixed_text(double number, int decimals) {
  if (!std::isfinite(number)) return "-";
  std::array<char, 400> buffer;  // the largest double has 309 digits before the point
  const auto end = write_fixed(buffer.data(), buffer.data() + buffer.size(), number, decimals);
  return std::string(buffer.data(), end.ptr);
}

std::string grouped_text(double number, int decimals) {
  return group(fixed_text(number, decimals));
}

std::string grouped_text(std::int64_t number) { return group(std::to_string(number)); }

std::string percent_text(double share, int decimals) {
  return fixed_text(100 * share, decimals) + " %";
}

std::string ms_text(double milliseconds) {
  if (!std::isfinite(milliseconds)) return "-";
  std::array<char, 400> buffer;
  const auto end = write_number(buffer.data(), buffer.data() + buffer.size(), milliseconds,
                                std::chars_format::fixed);  // the fewest digits that read back as
                                                            // the same value
  const std::string exact(buffer.data(), end.ptr);
  if (num_significant(exact) <= 4) return group(exact);
  int decimals = 1;
  double power = 10;  // 10^decimals
  while (decimals < 9 && std::abs(milliseconds) * power < 9.95) {
    ++decimals;
    power *= 10;
  }
  return grouped_text(milliseconds, decimals);
}

}  // namespace metronome
