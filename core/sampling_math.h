// The arithmetic of sampling that host and device share, so that both weigh and order tokens by the
// same bits. No function of the C library and no state: device code calls these as they are. Both
// sides are compiled without contraction into fused multiply-adds.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/rng.h"

namespace metronome {

// The logarithm of 2 in two parts; the first has so few bits that its small multiples are exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// exp(x) for x <= 0, to about one unit in the last place; 0 below e^-708, where doubles begin to
// lose digits. exp(0) is 1. Without branches, so that a loop over it can be vectorised.
constexpr double exp_of(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kRound = 0x1.8p52;  // added, it leaves the nearest integer in the low bits
  constexpr double kLowest = -708;
  const double in_range = x < kLowest ? kLowest : x;
  const double shifted = in_range * kLog2E + kRound;
  const double n = shifted - kRound;
  const double r = (in_range - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  double sum = 1.0 / 6227020800;                             // the Taylor series, up to r^13 / 13!
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
  sum = sum * r + 1.0;
  const double power = std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);
  return x < kLowest ? 0.0 : sum * power;
}

// Larger for larger logits, the same for 0 and -0. Between 0x00800000 and 0xff7fffff for finite
// ones.
constexpr std::uint32_t ordered_of(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Larger for likelier tokens; of equal logits (0 and -0 among them) for the lower index.
constexpr std::uint64_t key_of(float logit, std::size_t index) {
  return std::uint64_t{ordered_of(logit)} << 32 | static_cast<std::uint32_t>(~index);
}
constexpr std::size_t index_of(std::uint64_t key) { return static_cast<std::uint32_t>(~key); }

// The uniform number in [0, 1) of a draw, a multiple of 2^-53: draw number `position` of the
// SplitMix64 generator that begins at the scattered seed. The streams of seeds that are near each
// other have nothing in common.
constexpr double uniform_of(std::uint64_t seed, std::int64_t position) {
  return unit_of(mix64(mix64(seed) + kSplitMixStep * static_cast<std::uint64_t>(position)));
}

}  // namespace metronome
