#include "core/rng.h"

#include <boost/random/exponential_distribution.hpp>
#include <boost/random/gamma_distribution.hpp>
#include <boost/random/lognormal_distribution.hpp>
#include <boost/random/normal_distribution.hpp>
#include <boost/random/uniform_int_distribution.hpp>

#include "core/error.h"

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

// Streams of one seed are stretches of SplitMix64's single cycle of 2^64 states. They start at
// scattered places, so that two streams of a billion draws overlap with a chance of 1e-10.
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

double Rng::exponential(double mean) {
  return boost::random::exponential_distribution<double>(1.0)(*this) * mean;
}

double Rng::gamma(double shape, double scale) {
  return boost::random::gamma_distribution<double>(shape, scale)(*this);
}

double Rng::normal(double mean, double stddev) {
  return boost::random::normal_distribution<double>(mean, stddev)(*this);
}

double Rng::lognormal(double mu, double sigma) {
  return boost::random::lognormal_distribution<double>(mu, sigma)(*this);
}

}  // namespace metronome
