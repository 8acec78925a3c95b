// SPDX-License-Identifier: Apache-2.0
#include "core/base/math.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "core/base/bits.h"

namespace metronome {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A number whose value is high + low, where |low| is far below |high|.
struct Pair {
  double high;
  double low;
};

// a + b exactly, for |a| >= |b| or a = 0 (T. J. Dekker, 1971).
Pair sum_of(double a, double b) {
  const double high = a + b;
  return {high, b - (high - a)};
}

// a * b exactly where nothing overflows: Dekker's product of halves of 26 bits.
Pair product_of(double a, double b) {
  constexpr double kSplit = 0x1p27 + 1;
  const double a_high = a * kSplit - (a * kSplit - a);
  const double b_high = b * kSplit - (b * kSplit - b);
  const double a_low = a - a_high;
  const double b_low = b - b_high;
  const double high = a * b;
  return {high, ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

// x = 2^exponent (1 + f), with 1 + f between sqrt(1/2) and sqrt(2). For finite x > 0.
struct Scaled {
  double exponent;
  double f;
};
Scaled scaled(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // in [1/2, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --exponent;
  }
  return {static_cast<double>(exponent), m - 1};
}

// Twice the sum in brackets of artanh(s) = s + s (z / 3 + z^2 / 5 + ...), where z = s^2 < 0.03. It
// gives log(1 + f) = 2 artanh(s) with s = f / (2 + f).
double artanh_rest(double z) {
  double sum = 2.0 / 23;
  for (int k = 21; k >= 3; k -= 2) sum = sum * z + 2.0 / k;
  return sum * z;
}

// log(x) to about 58 bits, for finite x > 0.
Pair long_log(double x) {
  const auto [exponent, f] = scaled(x);
  const Pair divisor = sum_of(2, f);
  const double s = f / divisor.high;
  const Pair product = product_of(s, divisor.high);
  const double s_low = (((f - product.high) - product.low) - s * divisor.low) / divisor.high;
  const Pair high = sum_of(exponent * kLn2High, 2 * s);
  return sum_of(high.high, high.low + (2 * s_low + s * artanh_rest(s * s) + exponent * kLn2Low));
}

// tan(r) for |r| <= pi / 4: the quotient of the Taylor series up to r^17 / 17! and r^18 / 18!.
double tan_near_zero(double r) {
  const double z = r * r;
  double sine = 1;
  for (int k = 16; k >= 2; k -= 2) sine = 1 - sine * z / (k * (k + 1));
  double cosine = 1;
  for (int k = 17; k >= 1; k -= 2) cosine = 1 - cosine * z / (k * (k + 1));
  return r * sine / cosine;
}

}  // namespace

double exp_of(double x) {
  if (x > 710) return kInfinity;
  if (x < -746) return 0;
  if (x != x) return x;
  const ReducedExponent reduced = reduce_exponent(x);
  // The low 32 bits of `shifted` are n in two's complement.
  const auto n = static_cast<std::int32_t>(
      static_cast<std::uint32_t>(bits_as<std::uint64_t>(reduced.shifted)));
  return std::ldexp(exp_series(reduced.r), n);
}

double log_of(double x) {
  if (x == 0) return -kInfinity;
  if (!(x > 0)) return kNan;
  if (x == kInfinity) return x;
  const auto [exponent, f] = scaled(x);
  const double s = f / (2 + f);
  const double half_square = 0.5 * f * f;
  const double rest = s * (half_square + artanh_rest(s * s)) + exponent * kLn2Low;
  return exponent * kLn2High - ((half_square - rest) - f);
}

double pow_of(double base, double exponent) {
  if (base < 0) throw std::invalid_argument("a power of a negative number");
  if (exponent == 0) return 1;
  if (base == 0) return exponent > 0 ? 0 : kInfinity;
  const Pair log = long_log(base);
  const double whole = exponent * log.high;
  if (whole != whole) return whole;
  if (std::abs(whole) > 800) return whole > 0 ? kInfinity : 0;
  const double rest = product_of(exponent, log.high).low + exponent * log.low;
  const double power = exp_of(whole);
  return power + power * rest;
}

double tan_of(double x) {
  // Pi in two parts: differences from its multiples are exact near those multiples.
  constexpr double kPi = 0x1.921fb54442d18p+1;
  constexpr double kPiRest = 0x1.1a62633145c07p-53;
  if (x <= kPi / 4) return tan_near_zero(x);
  if (x >= 3 * (kPi / 4)) return tan_near_zero((x - kPi) - kPiRest);
  return 1 / tan_near_zero((kPi / 2 - x) + kPiRest / 2);
}

}  // namespace metronome
