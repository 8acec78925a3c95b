// SPDX-License-Identifier: Apache-2.0
// Parts of fits: the features of passes, and least squares without negative coefficients
// beside a search through every set of columns.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/model/model_catalogue.h"
#include "sim/cost/least_squares.h"
#include "sim/fitted/step_features.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

ScheduledChunk prefill(std::int32_t first, std::int32_t count, bool samples) {
  return {RequestId{0}, first, count, ChunkKind::Prefill, samples};
}
ScheduledChunk decode(std::int32_t context) {
  return {RequestId{0}, context - 1, 1, ChunkKind::Decode, true};
}

// Pairs of all layers, one by one.
double counted_pairs(const ModelConfig& model, const ScheduledChunk& chunk) {
  double pairs = 0;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    for (std::int64_t position = chunk.first_position; position < chunk.end_position();
         ++position) {
      const std::int64_t all = position + 1;
      pairs += static_cast<double>(
          model.is_window_layer(layer) ? std::min(all, model.sliding_window) : all);
    }
  }
  return pairs / static_cast<double>(model.n_layers);
}

// Solves the columns of `subset` alone by normal equations; nothing where they depend on each
// other or the solution is negative somewhere.
std::optional<std::vector<double>> solve_subset(const DesignMatrix& a, const std::vector<double>& b,
                                                unsigned subset) {
  std::vector<std::size_t> columns;
  for (std::size_t j = 0; j < a.num_columns; ++j) {
    if ((subset >> j & 1u) != 0) columns.push_back(j);
  }
  const std::size_t n = columns.size();
  std::vector<std::vector<long double>> m(n, std::vector<long double>(n + 1));
  for (std::size_t i = 0; i < b.size(); ++i) {
    const auto row = a.row(i);
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t c = 0; c < n; ++c) {
        m[r][c] += static_cast<long double>(row[columns[r]]) * row[columns[c]];
      }
      m[r][n] += static_cast<long double>(row[columns[r]]) * b[i];
    }
  }
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i) {
      if (std::abs(m[i][k]) > std::abs(m[pivot][k])) pivot = i;
    }
    if (std::abs(m[pivot][k]) < 1e-12L) return std::nullopt;
    std::swap(m[k], m[pivot]);
    for (std::size_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const long double factor = m[i][k] / m[k][k];
      for (std::size_t j = k; j <= n; ++j) m[i][j] -= factor * m[k][j];
    }
  }
  std::vector<double> x(a.num_columns);
  for (std::size_t k = 0; k < n; ++k) {
    const long double value = m[k][n] / m[k][k];
    if (value < 0) return std::nullopt;
    x[columns[k]] = static_cast<double>(value);
  }
  return x;
}

double squares(const DesignMatrix& a, const std::vector<double>& b, const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    double error = b[i];
    for (std::size_t j = 0; j < x.size(); ++j) error -= a.row(i)[j] * x[j];
    sum += error * error;
  }
  return sum;
}

DesignMatrix random_matrix(Rng& rng, std::size_t num_rows, std::size_t num_columns) {
  DesignMatrix a{num_columns, {}};
  for (std::size_t i = 0; i < num_rows; ++i) {
    for (std::size_t j = 0; j < num_columns; ++j) a.values.push_back(rng.normal(0.3, 1));
  }
  const auto column = [&](std::int32_t j, std::size_t i) -> double& {
    return a.values[i * num_columns + static_cast<std::size_t>(j)];
  };
  const auto last = static_cast<std::int32_t>(num_columns) - 1;
  if (last >= 1 && chance(rng, 0.3)) {  // one column is made up of another, or empty
    const double factor = chance(rng, 0.3) ? 0 : rng.uniform() * 3;
    for (std::size_t i = 0; i < num_rows; ++i) column(last, i) = factor * column(0, i);
  }
  const double scale = std::pow(10, draw(rng, -8, 8));
  for (std::size_t i = 0; i < num_rows; ++i) column(0, i) *= scale;
  return a;
}

StepFeatures features(const ModelConfig& model, const std::vector<ScheduledChunk>& chunks) {
  return pass_features(model, {.chunks = chunks});
}

}  // namespace

TEST_CASE("features of a pass, by hand", "[fitted]") {
  const ModelConfig model = find_model("llama-3.2-1b", {});
  const StepFeatures mixed = features(
      model, std::vector{decode(100), decode(7), prefill(10, 3, false), prefill(0, 4, true)});
  CHECK(mixed == StepFeatures{.tokens = 9,
                              .pairs = 11 + 12 + 13 + 1 + 2 + 3 + 4,
                              .prefill_chunks = 2,
                              .decodes = 2,
                              .decode_kv = 107,
                              .rows = 3,
                              .is_graph = false});
  CHECK(decodes_of(mixed) == features(model, std::vector{decode(100), decode(7)}));
  CHECK(decodes_of(mixed).is_graph);
  CHECK_FALSE(features(model, std::vector{prefill(0, 1, true)}).is_graph);
}

TEST_CASE("pairs and positions of layers with windows are means over the layers", "[fitted]") {
  const ModelConfig model = find_model("gemma-3-1b", {});
  REQUIRE(model.sliding_window == 512);
  const std::uint64_t seed = 20;
  INFO("seed " << seed);
  Rng rng(seed, "features");
  for (int i = 0; i < 60; ++i) {
    const std::int32_t num_tokens = draw(rng, 1, 900);
    const ScheduledChunk chunk = prefill(draw(rng, 0, 1500), num_tokens, false);
    const std::int32_t context = draw(rng, 1, 1500);
    const StepFeatures pass = features(model, std::vector{chunk, decode(context)});
    CHECK(pass.pairs == Approx(counted_pairs(model, chunk)));
    CHECK(pass.decode_kv == Approx(counted_pairs(model, prefill(context - 1, 1, true))));
  }
}

TEST_CASE("no set of columns fits better than non-negative least squares", "[fitted]") {
  const std::uint64_t seed = 7;
  INFO("seed " << seed);
  Rng rng(seed, "least squares");
  int num_inner = 0;  // cases where a coefficient is held at 0
  for (int round = 0; round < 500; ++round) {
    INFO("round " << round);
    const auto num_columns = static_cast<std::size_t>(draw(rng, 1, 6));
    const auto num_rows = static_cast<std::size_t>(draw(rng, 1, 15));
    const DesignMatrix a = random_matrix(rng, num_rows, num_columns);
    std::vector<double> b;
    for (std::size_t i = 0; i < num_rows; ++i) b.push_back(rng.normal(0.5, 2));
    double best = squares(a, b, std::vector<double>(num_columns));
    for (unsigned subset = 1; subset < 1u << num_columns; ++subset) {
      const auto x = solve_subset(a, b, subset);
      if (x) best = std::min(best, squares(a, b, *x));
    }
    const std::vector<double> x = non_negative_least_squares(a, b);
    REQUIRE(x.size() == num_columns);
    for (const double value : x) CHECK(value >= 0);
    num_inner += std::count(x.begin(), x.end(), 0.0) > 0 ? 1 : 0;
    CHECK(squares(a, b, x) <= best + 1e-7 * (1 + best));
  }
  CHECK(num_inner > 100);
}

TEST_CASE("columns that are no use get nothing", "[fitted]") {
  const DesignMatrix a{3, {1, 0, -1, 1, 0, -2, 1, 0, -3}};
  const std::vector<double> x = non_negative_least_squares(a, std::vector<double>{2.0, 2.0, 2.0});
  CHECK(x[0] == Approx(2));
  CHECK(x[1] == 0);
  CHECK(x[2] == 0);
  CHECK(non_negative_least_squares({2, {}}, {}) == std::vector<double>{0, 0});
}

TEST_CASE("exact times are fitted exactly, whatever their size", "[fitted]") {
  DesignMatrix a{2, {}};
  std::vector<double> times;
  for (int i = 1; i <= 40; ++i) {
    a.values.insert(a.values.end(), {1, std::pow(1.5, i)});
    times.push_back(3e6 + 20 * std::pow(1.5, i));
  }
  const std::vector<int> groups(times.size(), 0);
  const RelativeFit fit = fit_relative(a, times, groups);
  CHECK(fit.coefficients[0] == Approx(3e6).epsilon(1e-9));
  CHECK(fit.coefficients[1] == Approx(20).epsilon(1e-9));
  CHECK(std::count(fit.is_hiccup.begin(), fit.is_hiccup.end(), true) == 0);
}

TEST_CASE("hiccups do not count, and the rare kind of step is none", "[fitted]") {
  const std::uint64_t seed = 3;
  INFO("seed " << seed);
  Rng rng(seed, "hiccups");
  DesignMatrix a{2, {}};
  std::vector<double> times;
  std::vector<int> groups;
  std::vector<bool> is_slow;
  for (int i = 0; i < 1000; ++i) {
    const bool is_rare = i % 50 == 0;
    const bool is_hiccup = i % 100 == 51;
    const double ns = (is_rare ? 5e7 : 1e6) * (1 + 0.02 * rng.normal(0, 1));
    a.values.insert(a.values.end(), {is_rare ? 0.0 : 1.0, is_rare ? 1.0 : 0.0});
    times.push_back(is_hiccup ? ns * (3 + 5 * rng.uniform()) : ns);
    groups.push_back(is_rare ? 1 : 0);
    is_slow.push_back(is_hiccup);
  }
  const RelativeFit fit = fit_relative(a, times, groups);
  CHECK(fit.is_hiccup == is_slow);
  CHECK(fit.coefficients[0] == Approx(1e6).epsilon(0.004));
  CHECK(fit.coefficients[1] == Approx(5e7).epsilon(0.02));
}

TEST_CASE("a hiccup has no weight, and a slow step has less than its share", "[fitted]") {
  const std::uint64_t seed = 6;
  INFO("seed " << seed);
  const auto fitted = [&](double share, double slowness) {
    Rng rng(seed, "slow steps");
    DesignMatrix a{1, {}};
    std::vector<double> times;
    for (int i = 0; i < 4000; ++i) {
      const double ns = 1e6 * (1 + 0.02 * rng.normal(0, 1));
      a.values.push_back(1);
      times.push_back(chance(rng, share) ? ns * slowness : ns);
    }
    return fit_relative(a, times, std::vector<int>(times.size(), 0)).coefficients[0];
  };
  const double clean = fitted(0, 1);
  CHECK(fitted(0.05, 1.25) == Approx(clean).epsilon(6e-4));  // not 1 + 0.05 x 1.345 x 0.02
  // Of four deviations: the mean is 1.0072.
  CHECK(fitted(0.09, 1.08) < 1.0055 * clean);
  CHECK(fitted(0.09, 1.08) > clean);
}

}  // namespace metronome::testing::TEST_FILE
