#include "reports/number_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

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

}  // namespace

std::string fixed_text(double number, int decimals) {
  if (!std::isfinite(number)) return "-";
  std::array<char, 400> buffer;  // the largest double has 309 digits before the point
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                                 std::chars_format::fixed, decimals);
  return std::string(buffer.data(), end.ptr);
}

std::string grouped_text(double number, int decimals) {
  return group(fixed_text(number, decimals));
}

std::string grouped_text(std::int64_t number) { return group(std::to_string(number)); }

}  // namespace metronome
