// SPDX-License-Identifier: Apache-2.0
#include "core/base/distribution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace metronome {
namespace {

constexpr std::array<double, 4> kQuantiles = {0.50, 0.90, 0.95, 0.99};
constexpr auto kNsPerMsDouble = static_cast<double>(kNsPerMs);

// The position of a quantile in a sorted sample: between two neighbouring indices.
struct Rank {
  std::int64_t low;
  std::int64_t high;
  double fraction;
};

Rank rank_of(double quantile, std::int64_t count) {
  const double position = quantile * static_cast<double>(count - 1);
  const double floor = std::floor(position);
  const auto low = static_cast<std::int64_t>(floor);
  return {low, std::min(low + 1, count - 1), position - floor};
}

// NumPy interpolates from the nearer end, which keeps the result monotone in the fraction.
double interpolate(double low, double high, double fraction) {
  const double difference = high - low;
  return fraction < 0.5 ? low + difference * fraction : high - difference * (1.0 - fraction);
}

void set_percentiles(Distribution& result, const std::array<double, 4>& percentiles_ns) {
  result.p50_ms = percentiles_ns[0] / kNsPerMsDouble;
  result.p90_ms = percentiles_ns[1] / kNsPerMsDouble;
  result.p95_ms = percentiles_ns[2] / kNsPerMsDouble;
  result.p99_ms = percentiles_ns[3] / kNsPerMsDouble;
}

// Orders items of equal value by count.
void sort_ties(std::vector<WeightedTime>& sample) {
  for (auto begin = sample.begin(); begin != sample.end();) {
    const auto end = std::find_if(begin + 1, sample.end(), [&](const WeightedTime& item) {
      return item.value_ns != begin->value_ns;
    });
    std::sort(begin, end, [](const auto& a, const auto& b) { return a.count < b.count; });
    begin = end;
  }
}

// Sorts by value with a least-significant-digit radix sort. The pooled gaps of a run are by far its
// largest sample, and a comparison sort is several times slower. The radix sort needs a second copy
// of the sample, so the largest samples are sorted in place instead.
void sort_by_value(std::vector<WeightedTime>& sample) {
  constexpr std::size_t kMaxCopied = std::size_t{1} << 23;  // 128 MB
  // The order of ties decides the last bits of sums, which must not depend on how a sample is
  // sorted: that of the sample up to this size, else by count.
  constexpr std::size_t kMaxStable = std::size_t{1} << 21;
  if (sample.size() > kMaxCopied) {
    std::sort(sample.begin(), sample.end(), [](const WeightedTime& a, const WeightedTime& b) {
      return a.value_ns != b.value_ns ? a.value_ns < b.value_ns : a.count < b.count;
    });
    return;
  }
  constexpr int kDigitBits = 11;
  constexpr std::size_t kBuckets = std::size_t{1} << kDigitBits;
  TimeNs low = sample.front().value_ns;
  TimeNs high = low;
  for (const WeightedTime& item : sample) {
    low = std::min(low, item.value_ns);
    high = std::max(high, item.value_ns);
  }
  const auto range = static_cast<std::uint64_t>(high - low);
  std::vector<WeightedTime> scratch(sample.size());
  for (int shift = 0; shift < 64 && (range >> shift) != 0; shift += kDigitBits) {
    const auto digit = [&](const WeightedTime& item) {
      return static_cast<std::size_t>(static_cast<std::uint64_t>(item.value_ns - low) >> shift) %
             kBuckets;
    };
    std::array<std::size_t, kBuckets + 1> begin{};
    for (const WeightedTime& item : sample) ++begin[digit(item) + 1];
    for (std::size_t b = 1; b <= kBuckets; ++b) begin[b] += begin[b - 1];
    for (const WeightedTime& item : sample) scratch[begin[digit(item)]++] = item;
    sample.swap(scratch);
  }
  if (sample.size() > kMaxStable) sort_ties(sample);
}

}  // namespace

TimeNs longest_within(double limit_ms) {
  TimeNs longest = std::llround(limit_ms * kNsPerMsDouble);  // off by one at most
  while (to_ms(longest) > limit_ms) --longest;
  while (to_ms(longest + 1) <= limit_ms) ++longest;
  return longest;
}

Distribution describe(std::vector<double>& sample_ns) {
  Distribution result;
  result.count = static_cast<std::int64_t>(sample_ns.size());
  if (sample_ns.empty()) return result;
  const auto count = static_cast<double>(result.count);
  double sum = 0;
  double low = sample_ns.front();
  double high = low;
  for (const double value : sample_ns) {
    sum += value;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const double mean = sum / count;
  double squares = 0;
  for (const double value : sample_ns) squares += (value - mean) * (value - mean);
  result.mean_ms = mean / kNsPerMsDouble;
  result.std_ms = std::sqrt(squares / count) / kNsPerMsDouble;
  result.min_ms = low / kNsPerMsDouble;
  result.max_ms = high / kNsPerMsDouble;

  // Quantiles ascend: each selection leaves the larger values in the rest of the range.
  std::array<double, 4> percentiles{};
  auto begin = sample_ns.begin();
  for (std::size_t q = 0; q < kQuantiles.size(); ++q) {
    const Rank rank = rank_of(kQuantiles[q], result.count);
    const auto low_at = sample_ns.begin() + static_cast<std::ptrdiff_t>(rank.low);
    std::nth_element(begin, low_at, sample_ns.end());
    const double above =
        rank.high == rank.low ? *low_at : *std::min_element(low_at + 1, sample_ns.end());
    percentiles[q] = interpolate(*low_at, above, rank.fraction);
    begin = low_at;
  }
  set_percentiles(result, percentiles);
  return result;
}

Distribution describe(std::vector<WeightedTime>& sample) {
  Distribution result;
  std::erase_if(sample, [](const WeightedTime& item) { return item.count == 0; });
  if (sample.empty()) return result;
  sort_by_value(sample);
  double sum = 0;
  for (const WeightedTime& item : sample) {
    result.count += item.count;
    sum += static_cast<double>(item.value_ns) * static_cast<double>(item.count);
  }
  const auto count = static_cast<double>(result.count);
  const double mean = sum / count;
  double squares = 0;
  for (const WeightedTime& item : sample) {
    const double deviation = static_cast<double>(item.value_ns) - mean;
    squares += deviation * deviation * static_cast<double>(item.count);
  }
  result.mean_ms = mean / kNsPerMsDouble;
  result.std_ms = std::sqrt(squares / count) / kNsPerMsDouble;
  result.min_ms = static_cast<double>(sample.front().value_ns) / kNsPerMsDouble;
  result.max_ms = static_cast<double>(sample.back().value_ns) / kNsPerMsDouble;

  std::array<double, 4> percentiles{};
  std::size_t at = 0;
  std::int64_t through = sample[0].count;  // number of values in sample[0..at]
  for (std::size_t q = 0; q < kQuantiles.size(); ++q) {
    const Rank rank = rank_of(kQuantiles[q], result.count);
    while (through <= rank.low) through += sample[++at].count;
    const std::size_t next = rank.high < through ? at : at + 1;
    percentiles[q] = interpolate(static_cast<double>(sample[at].value_ns),
                                 static_cast<double>(sample[next].value_ns), rank.fraction);
  }
  set_percentiles(result, percentiles);
  return result;
}

double sorted_quantile(std::span<const double> sorted, double share) {
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - static_cast<double>(below));
}

}  // namespace metronome
