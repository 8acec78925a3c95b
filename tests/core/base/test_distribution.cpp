// SPDX-License-Identifier: Apache-2.0
// Weighted samples beside plain sums.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "core/base/distribution.h"
#include "core/base/rng.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

// The last bits of a sum depend on its order. Large samples have always had one by value and count,
// small ones keep the order of the sample among equal values.
TEST_CASE("sums over a weighted sample have a fixed order", "[base][distribution]") {
  for (const std::size_t size : {std::size_t{1000}, std::size_t{2'300'000}}) {
    constexpr std::uint64_t kSeed = 1;
    INFO(size << " items, seed " << kSeed);
    Rng rng(kSeed, "weighted sample");
    std::vector<WeightedTime> sample;
    for (std::size_t i = 0; i < size; ++i) {
      sample.push_back({rng.uniform_int(1, 200'000) * 100, rng.uniform_int(1, 90)});
    }
    std::vector<WeightedTime> sorted = sample;
    std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
      if (size < 2'000'000) return a.value_ns < b.value_ns;
      return std::tie(a.value_ns, a.count) < std::tie(b.value_ns, b.count);
    });
    double count = 0;
    double sum = 0;
    for (const WeightedTime& item : sorted) {
      count += static_cast<double>(item.count);
      sum += static_cast<double>(item.value_ns) * static_cast<double>(item.count);
    }
    double squares = 0;
    for (const WeightedTime& item : sorted) {
      const double deviation = static_cast<double>(item.value_ns) - sum / count;
      squares += deviation * deviation * static_cast<double>(item.count);
    }
    const Distribution found = describe(sample);
    CHECK(found.mean_ms == sum / count / 1e6);
    CHECK(found.std_ms == std::sqrt(squares / count) / 1e6);
    CHECK(found.min_ms == static_cast<double>(sorted.front().value_ns) / 1e6);
    CHECK(found.max_ms == static_cast<double>(sorted.back().value_ns) / 1e6);
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
