// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/time_histogram.h"

#include <algorithm>
#include <cmath>

namespace metronome {

void TimeHistogram::add(const TimeHistogram& others) {
  for (std::size_t o = 0; o < kOctaves; ++o) {
    if (others.counts_[o] == nullptr) continue;
    if (counts_[o] == nullptr) counts_[o] = std::make_unique<Octave>();
    for (std::size_t s = 0; s < kSlots; ++s) (*counts_[o])[s] += (*others.counts_[o])[s];
  }
  count_ += others.count_;
  sum_ += others.sum_;
  squares_ += others.squares_;
  min_ = std::min(min_, others.min_);
  max_ = std::max(max_, others.max_);
}

void TimeHistogram::subtract(const TimeHistogram& others) {
  for (std::size_t o = 0; o < kOctaves; ++o) {
    if (others.counts_[o] == nullptr) continue;
    for (std::size_t s = 0; s < kSlots; ++s) (*counts_[o])[s] -= (*others.counts_[o])[s];
  }
  count_ -= others.count_;
  sum_ -= others.sum_;
  squares_ -= others.squares_;
}

void TimeHistogram::set_extremes(TimeNs min_ns, TimeNs max_ns) {
  min_ = static_cast<std::uint64_t>(std::max<TimeNs>(min_ns, 0));
  max_ = static_cast<std::uint64_t>(std::max<TimeNs>(max_ns, 0));
}

// The values of a slot are taken to be evenly spread over it.
double TimeHistogram::value_at(double rank) const {
  double before = 0;
  for (std::size_t o = 0; o < kOctaves; ++o) {
    if (counts_[o] == nullptr) continue;
    for (std::size_t s = 0; s < kSlots; ++s) {
      const auto here = static_cast<double>((*counts_[o])[s]);
      if (here <= 0 || rank >= before + here) {
        before += here;
        continue;
      }
      const double first = static_cast<double>(o == 0 ? s : s + kSlots);
      const double width = std::ldexp(1.0, o == 0 ? 0 : static_cast<int>(o) - 1);
      const double value = first * width + (width - 1) * (rank - before + 0.5) / here;
      return std::clamp(value, static_cast<double>(min_), static_cast<double>(max_));
    }
  }
  return static_cast<double>(max_);
}

Distribution TimeHistogram::describe() const {
  Distribution result;
  if (count_ <= 0) return result;
  constexpr auto kNsPerMsDouble = static_cast<double>(kNsPerMs);
  const auto count = static_cast<double>(count_);
  const double mean = sum_ / count;
  result.count = count_;
  result.mean_ms = mean / kNsPerMsDouble;
  result.std_ms = std::sqrt(std::max(squares_ / count - mean * mean, 0.0)) / kNsPerMsDouble;
  result.min_ms = static_cast<double>(min_) / kNsPerMsDouble;
  result.max_ms = static_cast<double>(max_) / kNsPerMsDouble;
  const auto percentile = [&](double share) {
    const double rank = share * (count - 1);
    const double low = value_at(std::floor(rank));
    const double high = value_at(std::min(std::floor(rank) + 1, count - 1));
    return (low + (high - low) * (rank - std::floor(rank))) / kNsPerMsDouble;
  };
  result.p50_ms = percentile(0.50);
  result.p90_ms = percentile(0.90);
  result.p95_ms = percentile(0.95);
  result.p99_ms = percentile(0.99);
  return result;
}

}  // namespace metronome
