// SPDX-License-Identifier: Apache-2.0
// Exact statistics of a sample of durations, with the formulas of NumPy's mean, std and
// percentile (method "linear"), which vLLM's serving benchmark uses.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace metronome {

// All figures but count are NaN when the sample is empty.
struct Distribution {
  std::int64_t count = 0;
  double mean_ms = std::numeric_limits<double>::quiet_NaN();
  double std_ms = std::numeric_limits<double>::quiet_NaN();  // of the population: over count
  double min_ms = std::numeric_limits<double>::quiet_NaN();
  double p50_ms = std::numeric_limits<double>::quiet_NaN();
  double p90_ms = std::numeric_limits<double>::quiet_NaN();
  double p95_ms = std::numeric_limits<double>::quiet_NaN();
  double p99_ms = std::numeric_limits<double>::quiet_NaN();
  double max_ms = std::numeric_limits<double>::quiet_NaN();
};

// The longest duration that a limit in milliseconds allows: the largest value whose to_ms() is not
// above the limit. Percentiles and SLO checks use to_ms() too. `limit_ms` is between 0 and a month.
TimeNs longest_within(double limit_ms);

// A value that occurs `count` times in a sample.
struct WeightedTime {
  TimeNs value_ns = 0;
  std::int64_t count = 0;
};

// The value below which `share` of a sorted sample lies, between two of its values if need be.
// Requires a value.
double sorted_quantile(std::span<const double> sorted, double share);

// Takes the sample in nanoseconds and reorders it.
Distribution describe(std::vector<double>& sample_ns);

// Describes the sample in which every value is repeated `count` times, without expanding it. Counts
// are not negative. Reorders the sample.
Distribution describe(std::vector<WeightedTime>& sample);

}  // namespace metronome
