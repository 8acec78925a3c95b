// SPDX-License-Identifier: Apache-2.0
// Histograms of durations beside the exact figures of the same sample.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/distribution.h"
#include "core/base/rng.h"
#include "core/metrics/recent_steps.h"
#include "core/metrics/time_histogram.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr double kWidth = 1.0 / 256;  // of a slot, relative to its values

TEST_CASE("small values have slots of their own", "[metrics][histogram]") {
  TimeHistogram histogram;
  for (const TimeNs value : {0, 1, 2, 3, 255}) histogram.add(value);
  const Distribution found = histogram.describe();
  CHECK(found.count == 5);
  CHECK(found.min_ms == 0);
  CHECK(found.p50_ms == 2e-6);
  CHECK(found.max_ms == 255e-6);
  CHECK(std::isnan(TimeHistogram().describe().mean_ms));
}

TEST_CASE("percentiles are within a slot of the exact ones", "[metrics][histogram]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 20)));
  CAPTURE(seed);
  Rng rng(seed, "histogram");
  std::vector<WeightedTime> sample;
  TimeHistogram whole, first, second;
  const std::int64_t num_values = rng.uniform_int(1, 3000);
  for (std::int64_t i = 0; i < num_values; ++i) {
    const auto bits = static_cast<int>(rng.uniform_int(1, 40));
    const TimeNs value = rng.uniform_int(0, std::int64_t{1} << bits);
    const WeightedTime one = {value, rng.uniform_int(1, 5)};
    sample.push_back(one);
    whole.add(one.value_ns, one.count);
    (i % 2 == 0 ? first : second).add(one.value_ns, one.count);
  }
  const Distribution exact = describe(sample);
  first.add(second);
  for (const Distribution& found : {whole.describe(), first.describe()}) {
    CHECK(found.count == exact.count);
    CHECK(found.min_ms == exact.min_ms);
    CHECK(found.max_ms == exact.max_ms);
    CHECK(found.mean_ms == Approx(exact.mean_ms).epsilon(1e-9));
    CHECK(found.std_ms == Approx(exact.std_ms).epsilon(1e-6).margin(1e-6));
    CHECK(found.p50_ms == Approx(exact.p50_ms).epsilon(kWidth));
    CHECK(found.p90_ms == Approx(exact.p90_ms).epsilon(kWidth));
    CHECK(found.p95_ms == Approx(exact.p95_ms).epsilon(kWidth));
    CHECK(found.p99_ms == Approx(exact.p99_ms).epsilon(kWidth));
  }
  whole.subtract(second);
  CHECK(whole.count() == exact.count - second.count());
}

TEST_CASE("the extremes of the gaps in any range, whatever was forgotten", "[metrics][histogram]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 20)));
  CAPTURE(seed);
  Rng rng(seed, "histogram");
  RecentSteps steps;
  std::vector<TimeNs> ends;
  std::int64_t kept_from = 0;
  TimeNs now = 0;
  for (int i = 0; i < 400; ++i) {
    now += rng.uniform_int(1, 50);
    ends.push_back(now);
    steps.push(now);
    if (rng.uniform_int(0, 30) == 0) {
      kept_from = rng.uniform_int(kept_from, steps.size() - 1);
      steps.drop_before(kept_from);
    }
    const std::int64_t begin = rng.uniform_int(kept_from + 1, steps.size());
    RecentSteps::Extremes found, wanted;
    steps.fold(begin, steps.size(), found);
    for (std::int64_t s = begin; s < steps.size(); ++s) {
      const auto at = static_cast<std::size_t>(s);
      wanted.fold(ends[at] - ends[at - 1], ends[at] - ends[at - 1], s);
    }
    CHECK(found.max_step == wanted.max_step);
    CHECK(found.min_ns == wanted.min_ns);
    CHECK(found.max_ns == wanted.max_ns);
    CHECK(steps.finished_at(steps.size() - 1) == now);
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
