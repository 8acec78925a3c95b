// SPDX-License-Identifier: Apache-2.0
// Histograms of servers: differences, and quantiles with hand-computed answers.
#include <limits>
#include <map>

#include "engines/metrics/bucket_counts.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 2 values up to 0.1, 6 up to 0.5, 8 up to 1, 10 in all.
BucketCounts ten() {
  return make_buckets({{0.1, 2}, {0.5, 6}, {1, 8}, {kInfinity, 10}}, 10, 12);
}

void check(const BucketCounts& values, double share, double estimate, double least, double most) {
  INFO(share);
  const auto band = quantile_band(values, share);
  REQUIRE(band);
  CHECK(band->estimate == Approx(estimate).margin(1e-12));
  CHECK(band->least == least);
  CHECK(band->most == most);
}

}  // namespace

TEST_CASE("a quantile lies between two bounds, linear as Prometheus estimates it", "[metrics]") {
  // Rank 5 of 10 is the third of four values in (0.1, 0.5]: 0.1 + 0.4 * 3 / 4.
  check(ten(), 0.5, 0.4, 0.1, 0.5);
  check(ten(), 0.1, 0.05, 0, 0.1);        // rank 1 of two in (0, 0.1]
  check(ten(), 0.2, 0.1, 0, 0.1);         // rank 2: the bound itself
  check(ten(), 0.7, 0.75, 0.5, 1);        // rank 7 of two in (0.5, 1]
  check(ten(), 0.99, 1, 1, kInfinity);    // beyond the last bound
  check(ten(), 1, 1, 1, kInfinity);       // the largest
  check(ten(), 0, 0, 0, 0.1);             // the least
  const BucketCounts gap = make_buckets({{1, 0}, {2, 4}, {3, 4}, {kInfinity, 4}}, 4, 6);
  check(gap, 0, 1, 1, 2);  // an empty bucket has no value
  check(gap, 1, 2, 1, 2);
  check(make_buckets({{-1, 0}, {1, 2}, {kInfinity, 2}}, 2, 0), 0.5, 0, -1, 1);
  CHECK_FALSE(quantile_band(BucketCounts(), 0.5));
  CHECK_FALSE(quantile_band(make_buckets({{1, 0}, {kInfinity, 0}}, 0, 0), 0.5));
}

TEST_CASE("buckets of a page are put in order", "[metrics]") {
  const BucketCounts lacks_last = make_buckets({{1, 2}, {2, 3}}, 5, 9);
  CHECK(lacks_last.bounds == std::vector<double>{1, 2, kInfinity});
  CHECK(lacks_last.counts == std::vector<double>{2, 3, 5});
  CHECK(lacks_last.mean() == 9.0 / 5);
  const BucketCounts falls = make_buckets({{1, 4}, {2, 3}, {kInfinity, 5}}, 5, 1);
  CHECK(falls.counts == std::vector<double>{4, 4, 5});
}

TEST_CASE("a difference has the values between two looks", "[metrics]") {
  const BucketCounts before = ten();
  const BucketCounts now = make_buckets({{0.1, 3}, {0.5, 9}, {1, 11}, {kInfinity, 14}}, 14, 20);
  const auto values = values_since(before, now);
  REQUIRE(values);
  CHECK(values->counts == std::vector<double>{1, 3, 3, 4});
  CHECK(values->sum == 8);
  check(*values, 0.5, 0.3, 0.1, 0.5);  // rank 2: the first of two in (0.1, 0.5]
  CHECK(values_since(now, now)->empty());
  CHECK(values_since(BucketCounts(), now)->counts == now.counts);
  // A server that started again.
  CHECK_FALSE(values_since(now, before));
  CHECK_FALSE(values_since(make_buckets({{0.2, 1}, {kInfinity, 1}}, 1, 1), now));
}

TEST_CASE("histograms of engines add up", "[metrics]") {
  BucketCounts all;
  add_buckets(ten(), all);
  add_buckets(ten(), all);
  CHECK(all.counts == std::vector<double>{4, 12, 16, 20});
  CHECK(all.sum == 24);
  // Other bounds count at the next one.
  add_buckets(make_buckets({{0.3, 5}, {kInfinity, 6}}, 6, 2), all);
  CHECK(all.counts == std::vector<double>{4, 17, 21, 26});
}

}  // namespace metronome::testing::TEST_FILE
