// SPDX-License-Identifier: Apache-2.0
// Seeded random numbers. Each purpose has its own generator, so more draws for one purpose never
// shift another. rng.cpp runs Boost.Random's distributions on the functions of core/base/math.h,
// because the standard library's distributions differ between implementations.
#pragma once

#include <cstdint>
#include <string_view>

namespace metronome {

// SplitMix64 adds this to its state for each draw.
constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15ull;

// SplitMix64's finaliser: a bijection that scatters every bit. Used for seeds, prompt contents and
// digests.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += kSplitMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Maps 64 random bits to [0, 1); the result is a multiple of 2^-53.
constexpr double unit_of(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

class Rng {
 public:
  // `purpose` names the stream ("arrivals", "prompt_tokens").
  Rng(std::uint64_t seed, std::string_view purpose);

  using result_type = std::uint64_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()();

  std::int64_t uniform_int(std::int64_t low, std::int64_t high);  // inclusive
  double uniform();                                               // [0, 1)
  double gamma(double shape, double scale);
  double normal(double mean, double stddev);
  double lognormal(double mu, double sigma);  // of the underlying normal

 private:
  std::uint64_t state_;
};

}  // namespace metronome
