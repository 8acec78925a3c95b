// SPDX-License-Identifier: Apache-2.0
// core/base/math.h against long doubles of the C library, and the distributions that are made of it
// against their moments.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/math.h"
#include "core/base/rng.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kSeed = 20260923;

// How many units in the last place of `expected` lie between the two.
double ulps(double actual, long double expected) {
  const double rounded = std::abs(static_cast<double>(expected));
  const double unit = std::nextafter(rounded, kInfinity) - rounded;
  return static_cast<double>(std::abs(actual - expected) / unit);
}

double between(Rng& rng, double low, double high) { return low + (high - low) * rng.uniform(); }

struct Moments {
  double mean = 0;
  double variance = 0;
};
template <class Draw>
Moments moments_of(Draw draw) {
  constexpr int kCount = 200000;
  std::vector<double> values(kCount);
  Moments result;
  for (double& value : values) result.mean += (value = draw()) / kCount;
  for (const double value : values) {
    result.variance += (value - result.mean) * (value - result.mean) / kCount;
  }
  return result;
}

}  // namespace

TEST_CASE("exp, log, pow and tan are right to about a unit in the last place", "[math]") {
  Rng rng(kSeed, "math");
  double exp_error = 0;
  double log_error = 0;
  double pow_error = 0;
  double tan_error = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = between(rng, -708, 709);
    exp_error = std::max(exp_error, ulps(exp_of(x), std::exp(static_cast<long double>(x))));
    if (x <= 0) REQUIRE(exp_of_negative(x) == exp_of(x));
    const auto power = static_cast<int>(rng.uniform_int(-1022, 1022));
    const double wide = std::ldexp(1 + rng.uniform(), power);
    const double near_one = between(rng, 0.5, 2);
    for (const double y : {wide, near_one}) {
      log_error = std::max(log_error, ulps(log_of(y), std::log(static_cast<long double>(y))));
    }
    const double angle = between(rng, 0, 3.14159265358979);
    tan_error = std::max(tan_error, ulps(tan_of(angle), std::tan(static_cast<long double>(angle))));
    const double base = exp_of(between(rng, -20, 20));
    const double exponent = between(rng, -10, 10);
    pow_error = std::max(
        pow_error, ulps(pow_of(base, exponent), std::pow(static_cast<long double>(base),
                                                         static_cast<long double>(exponent))));
  }
  INFO("tan " << tan_error << ", exp " << exp_error << ", log " << log_error << ", pow "
              << pow_error);
  CHECK(exp_error < 1.3);
  CHECK(log_error < 1);
  CHECK(pow_error < 2);
  CHECK(tan_error < 4);
}

TEST_CASE("exp, log and pow at the ends of their ranges", "[math]") {
  CHECK(exp_of(0) == 1);
  CHECK(ulps(exp_of(1), std::exp(1.0L)) < 1.3);
  CHECK(exp_of(-745) == 5e-324);
  CHECK(exp_of(-kInfinity) == 0);
  CHECK(exp_of(709.78) < kInfinity);
  CHECK(exp_of(709.79) == kInfinity);
  CHECK(exp_of(kInfinity) == kInfinity);
  CHECK(std::isnan(exp_of(std::nan(""))));
  CHECK(exp_of_negative(-708.5) == 0);
  CHECK(exp_of_negative(-kInfinity) == 0);
  CHECK(log_of(1) == 0);
  CHECK(log_of(0) == -kInfinity);
  CHECK(log_of(-0.0) == -kInfinity);
  CHECK(log_of(kInfinity) == kInfinity);
  CHECK(std::isnan(log_of(-1)));
  CHECK(std::isnan(log_of(std::nan(""))));
  CHECK(log_of(5e-324) == Approx(-744.44007192138126));
  for (int n = -1074; n < 1024; ++n)
    REQUIRE(log_of(std::ldexp(1.0, n)) == Approx(n * std::log(2.0)));
  CHECK(pow_of(2, 10) == 1024);
  CHECK(pow_of(3, 0) == 1);
  CHECK(pow_of(0, 2) == 0);
  CHECK(pow_of(0, 0) == 1);
  CHECK(pow_of(0, -1) == kInfinity);
  CHECK(pow_of(10, 400) == kInfinity);
  CHECK(pow_of(10, -400) == 0);
  CHECK(std::isnan(pow_of(std::nan(""), 2)));
  CHECK_THROWS_AS(pow_of(-2, 2), std::invalid_argument);
}

TEST_CASE("distributions have their moments", "[math]") {
  Rng rng(kSeed, "moments");
  const Moments normal = moments_of([&] { return rng.normal(-2, 5); });
  CHECK(normal.mean == Approx(-2).margin(0.05));
  CHECK(normal.variance == Approx(25).epsilon(0.02));
  for (const double shape : {0.2, 0.9, 1.0, 4.5, 100.0}) {
    const Moments gamma = moments_of([&] { return rng.gamma(shape, 2); });
    INFO("shape " << shape);
    CHECK(gamma.mean == Approx(shape * 2).epsilon(0.03));
    CHECK(gamma.variance == Approx(shape * 4).epsilon(0.05));
  }
  const Moments lognormal = moments_of([&] { return rng.lognormal(1, 0.5); });
  CHECK(lognormal.mean == Approx(std::exp(1.125)).epsilon(0.02));
  std::vector<double> normals;
  for (int i = 0; i < 100001; ++i) normals.push_back(rng.normal(0, 1));
  std::sort(normals.begin(), normals.end());
  CHECK(normals[50000] == Approx(0).margin(0.02));
  CHECK(normals[97500] == Approx(1.95996).epsilon(0.02));
  CHECK(normals[500] == Approx(-2.57583).epsilon(0.03));
}

TEST_CASE("whole numbers are drawn evenly, from any range", "[math]") {
  Rng rng(kSeed, "integers");
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[static_cast<std::size_t>(rng.uniform_int(-3, 3) + 3)];
  for (const int count : counts) CHECK(count == Approx(10000).epsilon(0.05));
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();
  int negative = 0;
  int below_quarter = 0;
  for (int i = 0; i < 20000; ++i) {
    if (rng.uniform_int(kLowest, kHighest) < 0) ++negative;
    // Two thirds of all numbers: a draw that is not in a whole bucket is drawn again.
    const std::int64_t drawn = rng.uniform_int(kLowest / 3 * 2, kHighest / 3 * 2);
    REQUIRE(drawn >= kLowest / 3 * 2);
    REQUIRE(drawn <= kHighest / 3 * 2);
    if (drawn < kLowest / 3) ++below_quarter;
    REQUIRE(rng.uniform_int(5, 5) == 5);
  }
  CHECK(negative == Approx(10000).epsilon(0.05));
  CHECK(below_quarter == Approx(5000).epsilon(0.05));
}

}  // namespace TEST_FILE
