// SPDX-License-Identifier: Apache-2.0
// A histogram as a server shows it: counts of the values up to bounds.
#pragma once

#include <map>
#include <optional>
#include <vector>

namespace metronome {

struct BucketCounts {
  std::vector<double> bounds;  // upper ones, ascending; the last is infinity
  std::vector<double> counts;  // of values up to the bound of the same index, so they never fall
  double sum = 0;              // of the values

  bool empty() const { return counts.empty() || !(counts.back() > 0); }
  double count() const { return counts.empty() ? 0 : counts.back(); }
  double mean() const { return empty() ? 0 : sum / counts.back(); }
};

// Counts by bound, as the lines of a page have them. Without a line for infinity, `count` is its
// count. A count that is less than the one before is raised to it.
BucketCounts make_buckets(const std::map<double, double>& counts, double count, double sum);

// The values between two looks: `now` without those of `before`. nullopt: a count has fallen, or
// the bounds are others, as the server started again.
std::optional<BucketCounts> values_since(const BucketCounts& before, const BucketCounts& now);
// Both together. Other bounds of `more` count at the next bound of `all`.
void add_buckets(const BucketCounts& more, BucketCounts& all);

// A quantile: it lies between two bounds. `estimate` is linear between them, as Prometheus'
// histogram_quantile() is; `most` may be infinity, and the estimate is then `least`.
struct QuantileBand {
  double estimate = 0;
  double least = 0, most = 0;
};
// `share` is in [0, 1]; 1 is the largest value. nullopt: there are no values.
std::optional<QuantileBand> quantile_band(const BucketCounts& values, double share);

}  // namespace metronome
