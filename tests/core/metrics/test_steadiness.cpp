// SPDX-License-Identifier: Apache-2.0
// Which run is the steadiest, and when the p99 of its gaps says nothing of its stalls.
#include <cstdint>
#include <limits>
#include <vector>

#include "core/metrics/steadiness.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

// Gaps of 20 ms, and `num_stalls` of `stall_ms` among them; so many in all.
Distribution gaps(std::int64_t size, std::int64_t num_stalls, double stall_ms) {
  std::vector<WeightedTime> sample = {{20 * kNsPerMs, size - num_stalls},
                                      {static_cast<TimeNs>(stall_ms * 1e6), num_stalls}};
  return describe(sample);
}

}  // namespace

TEST_CASE("the p99 hides stalls that fewer than one gap in a hundred holds", "[metrics]") {
  CHECK(hides_stalls(gaps(400, 2, 6000)));
  CHECK(hides_stalls(gaps(400, 3, 3000)));
  CHECK_FALSE(hides_stalls(gaps(400, 16, 800)));  // p99 800 ms
  CHECK_FALSE(hides_stalls(gaps(400, 8, 1600)));
  CHECK(hides_stalls(gaps(1'000'000, 100, 6000)));
  CHECK_FALSE(hides_stalls(gaps(1'000'000, 1, 100)));  // no time is stalled to speak of
  // Steady gaps, whatever their rounding.
  CHECK_FALSE(hides_stalls(gaps(400, 0, 0)));
  CHECK_FALSE(hides_stalls(gaps(1, 0, 0)));
  CHECK_FALSE(hides_stalls(gaps(400, 1, 20.0001)));
  CHECK_FALSE(hides_stalls(Distribution{}));  // no gap
  // One gap in twenty takes twice as long; of the rare ones most are of this kind.
  std::vector<WeightedTime> chunks = {
      {20 * kNsPerMs, 9'500}, {40 * kNsPerMs, 499}, {900 * kNsPerMs, 1}};
  CHECK_FALSE(hides_stalls(describe(chunks)));
}

TEST_CASE("with hidden stalls the longest gap says which run is the steadiest", "[metrics]") {
  const std::vector<Distribution> few = {gaps(400, 2, 6000), gaps(400, 16, 800)};
  CHECK(few[0].p99_ms < few[1].p99_ms);
  CHECK(steady_by(few) == SteadyBy::Longest);
  CHECK(steady_figure_ms(few[0], SteadyBy::Longest) == 6000);
  const std::vector<Distribution> many = {gaps(400, 8, 1600), gaps(400, 16, 800)};
  CHECK(steady_by(many) == SteadyBy::P99);
  CHECK(steady_figure_ms(many[1], SteadyBy::P99) == 800);
}

TEST_CASE("marks of the best need more than noise, and a p99 the shortest longest gap",
          "[metrics]") {
  using Marks = std::vector<char>;
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto lowest = [](std::vector<double> figures) { return marked_leaders(figures, false); };
  CHECK(lowest({100, 100.02, 120}) == Marks{1, 1, 0});
  CHECK(lowest({100, 100.02}) == Marks{0, 0});
  CHECK(lowest({none, 3, 5}) == Marks{0, 1, 0});
  CHECK(lowest({}).empty());
  const std::vector<double> p99 = {20, 30, 20.1};
  CHECK(marked_leaders(p99, true) == Marks{0, 1, 0});
  CHECK(marked_p99_itls(p99, std::vector<double>{900, 40, 40}) == Marks{0, 0, 1});
  CHECK(marked_p99_itls(p99, std::vector<double>{900, 40, 80}) == Marks{0, 0, 0});
}

TEST_CASE("of figures that are the same the first is the steadiest", "[metrics]") {
  const auto first = [](std::vector<double> figures) { return steadiest(figures); };
  CHECK(first({60, 30.1, 30, 29.9}) == 1);
  CHECK(first({60, 31, 30, 29.9}) == 2);
  CHECK(first({std::numeric_limits<double>::quiet_NaN(), 5}) == 1);
  CHECK(first({std::numeric_limits<double>::quiet_NaN()}) == 0);
  CHECK(first({}) == 0);
  CHECK(is_same_figure(100, 99.1));
  CHECK_FALSE(is_same_figure(100, 98.9));
  CHECK(is_same_figure(0, 0));
}

}  // namespace TEST_FILE
