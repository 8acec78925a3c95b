// SPDX-License-Identifier: Apache-2.0
#include "core/workload/length_draws.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/math.h"

namespace metronome {

namespace {

constexpr double kNormalQuantile99 = 2.3263478740408408;  // of the standard normal distribution

}  // namespace

WeightedIndex::WeightedIndex(std::size_t num_values, const std::vector<double>& weights)
    : num_values_(num_values) {
  double sum = 0;
  for (const double weight : weights) cumulative_.push_back(sum += weight);
}

std::size_t WeightedIndex::draw(Rng& rng) const {
  if (cumulative_.empty()) {
    return static_cast<std::size_t>(rng.uniform_int(0, static_cast<std::int64_t>(num_values_) - 1));
  }
  const double point = rng.uniform() * cumulative_.back();
  const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), point);
  // Rounding can raise the point to the total; then it means the last value with a weight.
  const auto last = std::lower_bound(cumulative_.begin(), cumulative_.end(), cumulative_.back());
  return static_cast<std::size_t>(std::min(found, last) - cumulative_.begin());
}

LengthDraws::LengthDraws(const LengthConfig& config, std::uint64_t seed, std::string_view purpose)
    : config_(config), rng_(seed, purpose), position_(config.values.size(), config.weights) {
  if (config.distribution != LengthDistribution::Lognormal) return;
  if (config.median > 0) {
    mu_ = log_of(config.median);
    sigma_ = log_of(config.p99 / config.median) / kNormalQuantile99;
  } else {
    // Of a lognormal, mean = exp(mu + sigma^2 / 2) and variance = (exp(sigma^2) - 1) mean^2.
    const double ratio = config.deviation / config.mean;
    const double variance = log_of(1 + ratio * ratio);
    mu_ = log_of(config.mean) - variance / 2;
    sigma_ = std::sqrt(variance);
  }
}

std::int64_t LengthDraws::clamped(double length) const {
  const auto low = static_cast<double>(config_.min);
  const auto high = static_cast<double>(config_.max);
  return static_cast<std::int64_t>(std::clamp(std::round(length), low, high));
}

std::int64_t LengthDraws::next() {
  switch (config_.distribution) {
    case LengthDistribution::Fixed: return config_.value;
    case LengthDistribution::Uniform: return rng_.uniform_int(config_.min, config_.max);
    case LengthDistribution::Normal: return clamped(rng_.normal(config_.mean, config_.deviation));
    case LengthDistribution::Lognormal: return clamped(rng_.lognormal(mu_, sigma_));
    case LengthDistribution::Empirical: return config_.values[position_.draw(rng_)];
  }
  METRONOME_CHECK(false, "every distribution draws");
}

}  // namespace metronome
