// SPDX-License-Identifier: Apache-2.0
#include "engines/metrics/bucket_counts.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace metronome {

BucketCounts make_buckets(const std::map<double, double>& counts, double count, double sum) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  BucketCounts made;
  made.sum = std::isfinite(sum) ? sum : 0;
  double least = 0;
  const auto add = [&](double bound, double number) {
    least = std::max(least, number);
    made.bounds.push_back(bound);
    made.counts.push_back(least);
  };
  for (const auto& [bound, number] : counts) add(bound, number);
  if (!made.bounds.empty() && made.bounds.back() < kInfinity) add(kInfinity, count);
  return made;
}

std::optional<BucketCounts> values_since(const BucketCounts& before, const BucketCounts& now) {
  if (before.counts.empty()) return now;
  if (before.bounds != now.bounds) return std::nullopt;
  BucketCounts values = now;
  double least = 0;
  for (std::size_t i = 0; i < now.counts.size(); ++i) {
    if (now.counts[i] < before.counts[i]) return std::nullopt;
    // Pages are not written in one moment, so a difference may fall.
    least = std::max(least, now.counts[i] - before.counts[i]);
    values.counts[i] = least;
  }
  values.sum = std::max(now.sum - before.sum, 0.0);
  return values;
}

void add_buckets(const BucketCounts& more, BucketCounts& all) {
  if (more.counts.empty()) return;
  if (all.counts.empty()) {
    all = more;
    return;
  }
  for (std::size_t i = 0; i < all.bounds.size(); ++i) {
    const auto behind = std::upper_bound(more.bounds.begin(), more.bounds.end(), all.bounds[i]);
    if (behind == more.bounds.begin()) continue;
    all.counts[i] += more.counts[static_cast<std::size_t>(behind - more.bounds.begin()) - 1];
  }
  all.sum += more.sum;
}

std::optional<QuantileBand> quantile_band(const BucketCounts& values, double share) {
  if (values.empty()) return std::nullopt;
  const double rank = share * values.count();
  std::size_t at = 0;
  while (at + 1 < values.counts.size() && (values.counts[at] < rank || values.counts[at] <= 0)) {
    ++at;
  }
  QuantileBand band;
  band.most = values.bounds[at];
  band.least = at > 0 ? values.bounds[at - 1] : std::min(0.0, band.most);
  const double below = at > 0 ? values.counts[at - 1] : 0;
  const double within = values.counts[at] - below;
  band.estimate = band.least;
  if (std::isfinite(band.most) && within > 0) {
    band.estimate += (band.most - band.least) * std::clamp((rank - below) / within, 0.0, 1.0);
  }
  return band;
}

}  // namespace metronome
