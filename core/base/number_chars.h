// SPDX-License-Identifier: Apache-2.0
// Numbers as characters and back, exact and without a locale: std::from_chars and std::to_chars.
// Not every standard library has their forms for real numbers, so code that must run anywhere calls
// these.
#pragma once

#include <charconv>
#include <type_traits>

namespace metronome {

namespace detail {

#if defined(__cpp_lib_to_chars) && __cpp_lib_to_chars >= 201611L
constexpr bool kHasRealChars = true;
#else
constexpr bool kHasRealChars = false;
#endif

// Does as the library would, by strtod() and snprintf(): slower, and only where the C library's
// numbers have a decimal point. Real is float or double. chars_format() is none, as the shorter of
// two; without a precision, digits are the fewest that read back as the same number.
template <class Real>
std::from_chars_result read_real(const char* begin, const char* end, Real& number);
template <class Real>
std::to_chars_result write_real(char* begin, char* end, Real number, std::chars_format format);
std::to_chars_result write_real(char* begin, char* end, double number, int decimals);

template <class Number>
constexpr bool kNeedsSubstitute = std::is_floating_point_v<Number> && !kHasRealChars;

}  // namespace detail

// As std::from_chars.
template <class Number>
std::from_chars_result read_number(const char* begin, const char* end, Number& number) {
  if constexpr (detail::kNeedsSubstitute<Number>) {
    return detail::read_real(begin, end, number);
  } else {
    return std::from_chars(begin, end, number);
  }
}

template <class Integer>
std::from_chars_result read_number(const char* begin, const char* end, Integer& number, int base) {
  return std::from_chars(begin, end, number, base);
}

// As std::to_chars: integers, and real numbers with the fewest digits that read back as the same.
template <class Number>
std::to_chars_result write_number(char* begin, char* end, Number number) {
  if constexpr (detail::kNeedsSubstitute<Number>) {
    return detail::write_real(begin, end, number, std::chars_format());
  } else {
    return std::to_chars(begin, end, number);
  }
}

template <class Integer>
std::to_chars_result write_number(char* begin, char* end, Integer number, int base) {
  return std::to_chars(begin, end, number, base);
}

// The fewest digits in a format: fixed or scientific.
template <class Real>
std::to_chars_result write_number(char* begin, char* end, Real number, std::chars_format format) {
  if constexpr (detail::kNeedsSubstitute<Real>) {
    return detail::write_real(begin, end, number, format);
  } else {
    return std::to_chars(begin, end, number, format);
  }
}

// Fixed, with so many decimals.
template <class Real>
std::to_chars_result write_fixed(char* begin, char* end, Real number, int decimals) {
  if constexpr (detail::kNeedsSubstitute<Real>) {
    return detail::write_real(begin, end, number, decimals);
  } else {
    return std::to_chars(begin, end, number, std::chars_format::fixed, decimals);
  }
}

}  // namespace metronome
