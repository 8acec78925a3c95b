// SPDX-License-Identifier: Apache-2.0
#include "core/base/number_chars.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fmt/core.h>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

namespace metronome::detail {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The end of `word`, in letters of any case, at `begin`; nullptr: it is not there.
const char* end_of_word(const char* begin, const char* end, std::string_view word) {
  for (const char letter : word) {
    if (begin == end || (*begin | 0x20) != letter) return nullptr;
    ++begin;
  }
  return begin;
}

// The end of infinity or of what is not a number; nullptr: there is neither.
const char* end_of_special(const char* begin, const char* end) {
  for (const std::string_view word : {"infinity", "inf"}) {
    if (const char* behind = end_of_word(begin, end, word)) return behind;
  }
  const char* const behind = end_of_word(begin, end, "nan");
  if (behind == nullptr || behind == end || *behind != '(') return behind;
  const char* close = behind + 1;
  const auto is_word = [](char c) {
    return is_digit(c) || c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  };
  while (close != end && is_word(*close)) ++close;
  return close != end && *close == ')' ? close + 1 : behind;
}

const char* end_of_digits(const char* begin, const char* end) {
  return std::find_if_not(begin, end, is_digit);
}

// The end of a decimal number without a sign; `begin`: there is none.
const char* end_of_decimal(const char* begin, const char* end) {
  const char* at = end_of_digits(begin, end);
  auto num_digits = at - begin;
  if (at != end && *at == '.') {
    const char* const fraction = at + 1;
    at = end_of_digits(fraction, end);
    num_digits += at - fraction;
  }
  if (num_digits == 0) return begin;
  if (at == end || (*at | 0x20) != 'e') return at;
  const char* exponent = at + 1;
  if (exponent != end && (*exponent == '+' || *exponent == '-')) ++exponent;
  const char* const behind = end_of_digits(exponent, end);
  return behind == exponent ? at : behind;
}

void parse(const std::string& text, float& number) { number = std::strtof(text.c_str(), nullptr); }
void parse(const std::string& text, double& number) { number = std::strtod(text.c_str(), nullptr); }

std::string printed(const char* format, int precision, double number) {
  std::string text(static_cast<std::size_t>(std::snprintf(nullptr, 0, format, precision, number)),
                   '\0');
  std::snprintf(text.data(), text.size() + 1, format, precision, number);
  return text;
}

// A number that is not negative as digits * 10^exponent, without zeros at the end of its digits.
struct Decimal {
  std::string digits;
  int exponent = 0;
};

// The nearest with so many digits.
Decimal rounded(double number, int num_digits) {
  const std::string text = printed("%.*e", num_digits - 1, number);
  const std::size_t e = text.find('e');
  Decimal decimal{text.substr(0, 1), std::atoi(text.c_str() + e + 1) - (num_digits - 1)};
  if (num_digits > 1) decimal.digits += text.substr(2, e - 2);
  return decimal;
}

// The next larger one of as many digits.
Decimal above(Decimal decimal) {
  std::size_t at = decimal.digits.size();
  while (at > 0 && decimal.digits[at - 1] == '9') decimal.digits[--at] = '0';
  if (at > 0) {
    ++decimal.digits[at - 1];
  } else {
    decimal.digits.insert(0, 1, '1');
  }
  return decimal;
}

template <class Real>
bool reads_back(const Decimal& decimal, Real number) {
  Real read = 0;
  parse(fmt::format("{}e{}", decimal.digits, decimal.exponent), read);
  return read == number;
}

// Below a power of two, numbers lie closer than above. So where the nearest decimal is below and
// reads back as another number, the next one above may read back as this one.
template <class Real>
Decimal shortest(Real number) {
  Decimal decimal;
  for (int num_digits = 1; num_digits <= std::numeric_limits<Real>::max_digits10; ++num_digits) {
    decimal = rounded(number, num_digits);
    if (reads_back(decimal, number)) break;
    const Decimal next = above(decimal);
    if (reads_back(next, number)) {
      decimal = next;
      break;
    }
  }
  while (decimal.digits.size() > 1 && decimal.digits.back() == '0') {
    decimal.digits.pop_back();
    ++decimal.exponent;
  }
  return decimal;
}

std::string scientific(Decimal decimal) {
  const int exponent = decimal.exponent + static_cast<int>(decimal.digits.size()) - 1;
  if (decimal.digits.size() > 1) decimal.digits.insert(1, 1, '.');
  return fmt::format("{}e{}{:02}", decimal.digits, exponent < 0 ? '-' : '+', std::abs(exponent));
}

// Whole numbers are written to their last digit.
std::string fixed(Decimal decimal, double number) {
  if (decimal.exponent >= 0) return printed("%.*f", 0, number);
  const auto num_decimals = static_cast<std::size_t>(-decimal.exponent);
  std::string& digits = decimal.digits;
  if (digits.size() <= num_decimals) digits.insert(0, num_decimals + 1 - digits.size(), '0');
  return digits.insert(digits.size() - num_decimals, 1, '.');
}

std::to_chars_result copied(const std::string& text, char* begin, char* end) {
  if (end - begin < static_cast<std::ptrdiff_t>(text.size())) {
    return {end, std::errc::value_too_large};
  }
  return {std::copy(text.begin(), text.end(), begin), std::errc()};
}

// Infinity and what is not a number.
std::string special_text(double number) {
  return std::string(std::signbit(number) ? "-" : "") + (std::isnan(number) ? "nan" : "inf");
}

}  // namespace

template <class Real>
std::from_chars_result read_real(const char* begin, const char* end, Real& number) {
  const char* const first = begin != end && *begin == '-' ? begin + 1 : begin;
  const char* const special = end_of_special(first, end);
  const char* const behind = special != nullptr ? special : end_of_decimal(first, end);
  if (behind == first) return {begin, std::errc::invalid_argument};
  Real read = 0;
  parse(std::string(begin, behind), read);
  const auto is_nonzero = [](char c) { return c >= '1' && c <= '9'; };
  const auto is_exponent = [](char c) { return (c | 0x20) == 'e'; };
  const char* const digits_end = std::find_if(first, behind, is_exponent);
  const bool is_too_small = read == 0 && std::any_of(first, digits_end, is_nonzero);
  if (special == nullptr && (std::isinf(read) || is_too_small)) {
    return {behind, std::errc::result_out_of_range};
  }
  number = read;
  return {behind, std::errc()};
}

template <class Real>
std::to_chars_result write_real(char* begin, char* end, Real number, std::chars_format format) {
  if (!std::isfinite(number)) return copied(special_text(number), begin, end);
  const std::string sign = std::signbit(number) ? "-" : "";
  const Real magnitude = std::abs(number);
  const Decimal decimal = shortest(magnitude);
  if (format == std::chars_format()) {
    // The shorter one, and of two as long the fixed one. One digit has no point in the scientific.
    const int num_digits = static_cast<int>(decimal.digits.size());
    const int one = num_digits == 1 ? 1 : 0;
    const bool is_fixed =
        decimal.exponent >= -(num_digits + 3) + one && decimal.exponent <= 5 - one;
    format = is_fixed ? std::chars_format::fixed : std::chars_format::scientific;
  }
  const bool is_fixed = format == std::chars_format::fixed;
  return copied(sign + (is_fixed ? fixed(decimal, magnitude) : scientific(decimal)), begin, end);
}

std::to_chars_result write_real(char* begin, char* end, double number, int decimals) {
  if (!std::isfinite(number)) return copied(special_text(number), begin, end);
  return copied(printed("%.*f", decimals, number), begin, end);
}

template std::from_chars_result read_real(const char*, const char*, float&);
template std::from_chars_result read_real(const char*, const char*, double&);
template std::to_chars_result write_real(char*, char*, float, std::chars_format);
template std::to_chars_result write_real(char*, char*, double, std::chars_format);

}  // namespace metronome::detail
