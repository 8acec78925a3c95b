// SPDX-License-Identifier: Apache-2.0
#include "core/base/rng.h"

#include <boost/random/gamma_distribution.hpp>
#include <boost/random/lognormal_distribution.hpp>
#include <boost/random/normal_distribution.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/base/error.h"
#include "core/base/math.h"

namespace metronome {
namespace {

// A double whose exp, log, pow and tan come from core/base/math.h. Boost's distributions find these
// functions by argument type. For a plain double they would call the C library.
struct Real {
  double value = 0;

  Real() = default;
  template <class T>
  requires std::is_arithmetic_v<T> Real(T number) : value(static_cast<double>(number)) {}

  Real& operator+=(Real other) { return *this = value + other.value; }
  Real& operator*=(Real other) { return *this = value * other.value; }
  friend Real operator-(Real a) { return -a.value; }
  friend Real operator+(Real a, Real b) { return a.value + b.value; }
  friend Real operator-(Real a, Real b) { return a.value - b.value; }
  friend Real operator*(Real a, Real b) { return a.value * b.value; }
  friend Real operator/(Real a, Real b) { return a.value / b.value; }
  friend bool operator==(Real a, Real b) { return a.value == b.value; }
  friend bool operator<(Real a, Real b) { return a.value < b.value; }
  friend bool operator>(Real a, Real b) { return a.value > b.value; }
  friend bool operator<=(Real a, Real b) { return a.value <= b.value; }
  friend bool operator>=(Real a, Real b) { return a.value >= b.value; }

  friend Real sqrt(Real a) { return std::sqrt(a.value); }  // IEEE 754 defines it to the bit
  friend Real exp(Real a) { return exp_of(a.value); }
  friend Real log(Real a) { return log_of(a.value); }
  friend Real pow(Real a, Real b) { return pow_of(a.value, b.value); }
  friend Real tan(Real a) { return tan_of(a.value); }
};

}  // namespace
}  // namespace metronome

template <>
class std::numeric_limits<metronome::Real> : public std::numeric_limits<double> {};

namespace metronome {
namespace {

// FNV-1a, 64 bit.
std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

}  // namespace

// The streams of one seed are segments of SplitMix64's single cycle of 2^64 states. They start at
// scattered states: two streams of a billion draws overlap with probability 1e-10.
Rng::Rng(std::uint64_t seed, std::string_view purpose)
    : state_(mix64(mix64(seed) ^ hash_name(purpose))) {}

Rng::result_type Rng::operator()() {
  const result_type drawn = mix64(state_);
  state_ += kSplitMixStep;
  return drawn;
}

std::int64_t Rng::uniform_int(std::int64_t low, std::int64_t high) {
  METRONOME_CHECK(low <= high, "an empty range has no number to draw");
  return boost::random::uniform_int_distribution<std::int64_t>(low, high)(*this);
}

double Rng::uniform() { return unit_of((*this)()); }

double Rng::gamma(double shape, double scale) {
  return boost::random::gamma_distribution<Real>(shape, scale)(*this).value;
}

double Rng::normal(double mean, double stddev) {
  return boost::random::normal_distribution<Real>(mean, stddev)(*this).value;
}

double Rng::lognormal(double mu, double sigma) {
  return boost::random::lognormal_distribution<Real>(mu, sigma)(*this).value;
}

}  // namespace metronome
