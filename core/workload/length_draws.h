// SPDX-License-Identifier: Apache-2.0
// Draws from the distributions of a workload.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/rng.h"
#include "core/workload/workload_config.h"

namespace metronome {

// Draws indices with the given weights; no weights means equal ones.
class WeightedIndex {
 public:
  WeightedIndex(std::size_t num_values, const std::vector<double>& weights);
  std::size_t draw(Rng& rng) const;

 private:
  std::size_t num_values_;
  std::vector<double> cumulative_;
};

// Draws one number after the other. `purpose` names the stream of random numbers.
class LengthDraws {
 public:
  // `config` must outlive this.
  LengthDraws(const LengthConfig& config, std::uint64_t seed, std::string_view purpose);
  std::int64_t next();

 private:
  std::int64_t clamped(double length) const;

  const LengthConfig& config_;
  Rng rng_;
  WeightedIndex position_;
  double mu_ = 0;  // lognormal: of the underlying normal
  double sigma_ = 0;
};

}  // namespace metronome
