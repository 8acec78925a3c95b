// SPDX-License-Identifier: Apache-2.0
// exp, log and pow with the same bits on every machine. The C library's results differ between
// versions and between processors with and without fused multiply-adds. So core/ and sim/ use these
// instead. They use only operations that IEEE 754 defines to the bit: sums, products, quotients and
// integer powers of two. Everything is compiled without contraction into fused multiply-adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/bits.h"

namespace metronome {

// log(2) in two parts. The first part has few enough bits that its small multiples are exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// x = n log(2) + r with |r| <= log(2) / 2, for |x| <= 2^20. The low bits of `shifted` hold n.
struct ReducedExponent {
  double shifted;
  double r;
};
constexpr ReducedExponent reduce_exponent(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  const double shifted = x * kLog2E + kRound;
  const double n = shifted - kRound;
  return {shifted, (x - n * kLn2High) - n * kLn2Low};
}

// exp(r) for |r| <= log(2) / 2: the Taylor series up to r^13 / 13!.
constexpr double exp_series(double r) {
  double sum = 1.0 / 6227020800;
  sum = sum * r + 1.0 / 479001600;
  sum = sum * r + 1.0 / 39916800;
  sum = sum * r + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 1.0 / 2;
  sum = sum * r + 1.0;
  return sum * r + 1.0;
}

// exp(x) for x <= 0, to about one unit in the last place. Returns 0 below -708, where doubles begin
// to lose digits. It has no branches, so loops over it can be vectorised. Device code calls it too.
constexpr double exp_of_negative(double x) {
  constexpr double kLowest = -708;
  const ReducedExponent reduced = reduce_exponent(x < kLowest ? kLowest : x);
  const auto bits = bits_as<std::uint64_t>(reduced.shifted);
  const double power = bits_as<double>((bits + 1023) << 52);
  return x < kLowest ? 0.0 : exp_series(reduced.r) * power;
}

// exp(x) for any x, to about one unit in the last place. Infinity above 709.782..., 0 far below
// -745, NaN for NaN.
double exp_of(double x);

// Of a tensor with this many rows and columns.
constexpr std::size_t num_elements(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

// The natural logarithm, to about one unit in the last place. -infinity for 0, NaN for NaN and for
// negative x, infinity for infinity.
double log_of(double x);

// base^exponent for base > 0, to about two units in the last place. 0^y is 0 for y > 0 and 1 for y
// = 0. NaN for NaN. A negative base throws std::invalid_argument.
double pow_of(double base, double exponent);

// tan(x) for 0 <= x <= pi, to about two units in the last place of max(tan(x), 1).
double tan_of(double x);

}  // namespace metronome
