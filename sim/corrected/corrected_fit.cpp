// SPDX-License-Identifier: Apache-2.0
#include "sim/corrected/corrected_fit.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace metronome {
namespace {

// Decode ranges end at powers of two, where engines and libraries change kernels. Prompt ranges end
// at multiples of a matrix product's tile.
constexpr std::int64_t kDecodeRanges[] = {4, 8, 16, 32, 64, 128, 256, 512};
constexpr std::int64_t kPromptTile = 128;
constexpr std::int64_t kMaxPromptTokens = 8192;

constexpr double kStepScatter = 0.01;
constexpr double kLinkScatter = 0.5;
constexpr double kMinInstantNs = 0.2e6;
constexpr double kHuberDeviations = 3;
constexpr int kRounds = 15;

double square(double x) { return x * x; }

// The columns of the design: ranges of decodes, ranges of prompts, attention of either, and
// collectives.
class Columns {
 public:
  explicit Columns(const StepFactors& factors)
      : factors_(factors), num_ranges_(factors.decode.size() + factors.prompt.size()) {}

  Eigen::Index count() const { return link() + 1; }
  Eigen::Index num_ranges() const { return static_cast<Eigen::Index>(num_ranges_); }
  Eigen::Index link() const { return num_ranges() + 2; }
  Eigen::Index num_decode_ranges() const {
    return static_cast<Eigen::Index>(factors_.decode.size());
  }
  Eigen::Index range_of(const PredictedStep& step) const {
    const auto* range = &factors_.range_of(tokens_of(step));
    return step.num_prefill_tokens > 0 ? num_decode_ranges() + (range - factors_.prompt.data())
                                       : static_cast<Eigen::Index>(range - factors_.decode.data());
  }
  Eigen::Index attention_of(const PredictedStep& step) const {
    return num_ranges() + (step.num_prefill_tokens > 0 ? 1 : 0);
  }

 private:
  const StepFactors& factors_;
  std::size_t num_ranges_;
};

// Per interval: the base's prediction by column, the excess of the measured time, its own variance.
struct Observations {
  Eigen::MatrixXd predicted;
  Eigen::VectorXd excess;
  Eigen::VectorXd variance;
};

Observations observe(const Columns& columns, std::span<const PredictedStep> steps,
                     std::span<const MeasuredInterval> intervals) {
  const auto num_rows = static_cast<Eigen::Index>(intervals.size());
  Observations all{Eigen::MatrixXd::Zero(num_rows, columns.count()),
                   Eigen::VectorXd::Zero(num_rows), Eigen::VectorXd::Zero(num_rows)};
  for (Eigen::Index i = 0; i < num_rows; ++i) {
    const MeasuredInterval& interval = intervals[static_cast<std::size_t>(i)];
    double sum = 0;
    for (std::size_t s = interval.begin; s < interval.end; ++s) {
      const PredictedStep& step = steps[s];
      all.predicted(i, columns.range_of(step)) += step.rest_ns;
      all.predicted(i, columns.attention_of(step)) += step.attention_ns;
      all.predicted(i, columns.link()) += step.comm_ns;
      const double step_ns = step.rest_ns + step.attention_ns + step.comm_ns;
      sum += step_ns;
      all.variance(i) += square(kStepScatter * step_ns);
    }
    all.excess(i) = interval.took_ns - sum;
  }
  return all;
}

// The prior of the factors: rows for deviations from 1 and for differences between neighbours.
Eigen::MatrixXd prior_rows(const Columns& columns, const BaseScatter& scatter) {
  const Eigen::Index n = columns.count();
  const Eigen::Index num_ranges = columns.num_ranges();
  Eigen::MatrixXd rows = Eigen::MatrixXd::Zero(n + num_ranges, n);
  for (Eigen::Index k = 0; k < n; ++k) {
    rows(k, k) = 1 / (k == columns.link() ? kLinkScatter : scatter.factor);
  }
  for (Eigen::Index k = 0; k + 1 < num_ranges; ++k) {
    if (k + 1 == columns.num_decode_ranges()) continue;
    rows(n + k, k) = -1 / scatter.neighbours;
    rows(n + k, k + 1) = 1 / scatter.neighbours;
  }
  return rows;
}

// Makes the rows independent, with unit variance. Neighbours share an instant, whose error enters
// with opposite signs. The covariance has two diagonals; this is forward substitution with its
// Cholesky factor.
void whiten(std::span<const MeasuredInterval> intervals, const Eigen::VectorXd& weights,
            double instant_variance, Observations& all) {
  double diagonal = 0;  // of the factor, in the previous row
  for (Eigen::Index i = 0; i < all.excess.size(); ++i) {
    const bool follows = i > 0 && intervals[static_cast<std::size_t>(i)].follows;
    double variance = all.variance(i) / weights(i) + 2 * instant_variance;
    if (follows) {
      const double below = -instant_variance / diagonal;
      variance -= square(below);
      all.predicted.row(i) -= below * all.predicted.row(i - 1);
      all.excess(i) -= below * all.excess(i - 1);
    }
    diagonal = std::sqrt(variance);
    all.predicted.row(i) /= diagonal;
    all.excess(i) /= diagonal;
  }
}

// Estimated from how neighbouring residuals deviate in opposite directions. Residuals are clamped
// at their 90th percentile.
double instant_variance_of(std::span<const MeasuredInterval> intervals,
                           const Eigen::VectorXd& residuals) {
  std::vector<double> sizes;
  for (const double residual : residuals) sizes.push_back(std::abs(residual));
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() * 9 / 10);
  std::nth_element(sizes.begin(), middle, sizes.end());
  const double most = *middle;
  double sum = 0;
  double count = 0;
  for (Eigen::Index i = 1; i < residuals.size(); ++i) {
    if (!intervals[static_cast<std::size_t>(i)].follows) continue;
    sum -= std::clamp(residuals(i), -most, most) * std::clamp(residuals(i - 1), -most, most);
    ++count;
  }
  return std::max(square(kMinInstantNs), count > 0 ? sum / count : 0.0);
}

}  // namespace

double corrected_ns(const StepFactors& factors, const PredictedStep& step) {
  const bool has_prompts = step.num_prefill_tokens > 0;
  return step.rest_ns * factors.range_of(tokens_of(step)).factor +
         step.attention_ns * (has_prompts ? factors.prompt_attention : factors.decode_attention) +
         step.comm_ns * factors.link;
}

StepFactors unit_factors() {
  StepFactors factors;
  for (const std::int64_t tokens : kDecodeRanges) factors.decode.push_back({tokens, 1, 0});
  for (std::int64_t tokens = kPromptTile; tokens <= kMaxPromptTokens; tokens += kPromptTile) {
    factors.prompt.push_back({tokens, 1, 0});
  }
  return factors;
}

CorrectionFit fit_correction(std::span<const PredictedStep> steps,
                             std::span<const MeasuredInterval> intervals,
                             const BaseScatter& scatter) {
  METRONOME_CHECK(intervals.size() >= kMinIntervals, "a fit needs enough intervals");
  StepFactors factors = unit_factors();
  const Columns columns(factors);
  const Observations observed = observe(columns, steps, intervals);
  const Eigen::MatrixXd prior = prior_rows(columns, scatter);
  Eigen::VectorXd weights = Eigen::VectorXd::Ones(observed.excess.size());
  Eigen::VectorXd change = Eigen::VectorXd::Zero(columns.count());
  double instant_variance = square(kMinInstantNs);
  for (int round = 0; round < kRounds; ++round) {
    Observations white = observed;
    whiten(intervals, weights, instant_variance, white);
    const Eigen::MatrixXd normal =
        white.predicted.transpose() * white.predicted + prior.transpose() * prior;
    change = normal.ldlt().solve(white.predicted.transpose() * white.excess);
    const Eigen::VectorXd residuals = observed.excess - observed.predicted * change;
    instant_variance = instant_variance_of(intervals, residuals);
    for (Eigen::Index i = 0; i < residuals.size(); ++i) {
      const double deviations =
          std::abs(residuals(i)) / std::sqrt(observed.variance(i) + 2 * instant_variance);
      weights(i) = 1 / std::max(1.0, deviations / kHuberDeviations);
    }
  }
  // A factor is at least 0.1 and at most 10, whatever was measured.
  const auto factor = [&](Eigen::Index k) { return std::clamp(1 + change(k), 0.1, 10.0); };
  const Eigen::Index num_decode = columns.num_decode_ranges();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(columns.count()));
  for (const MeasuredInterval& interval : intervals) {
    for (std::size_t s = interval.begin; s < interval.end; ++s) {
      ++counts[static_cast<std::size_t>(columns.range_of(steps[s]))];
    }
  }
  for (Eigen::Index k = 0; k < columns.num_ranges(); ++k) {
    StepFactors::Range& range = k < num_decode
                                    ? factors.decode[static_cast<std::size_t>(k)]
                                    : factors.prompt[static_cast<std::size_t>(k - num_decode)];
    range.factor = factor(k);
    range.num_steps = counts[static_cast<std::size_t>(k)];
  }
  factors.decode_attention = factor(columns.num_ranges());
  factors.prompt_attention = factor(columns.num_ranges() + 1);
  factors.link = factor(columns.link());
  CorrectionFit fit = check_factors(factors, steps, intervals);
  fit.instant_ns = std::sqrt(instant_variance);
  return fit;
}

CorrectionFit check_factors(const StepFactors& factors, std::span<const PredictedStep> steps,
                            std::span<const MeasuredInterval> intervals) {
  CorrectionFit check{factors, 0, 0, 0};
  double took = 0;
  double predicted = 0;
  for (const MeasuredInterval& interval : intervals) {
    double ns = 0;
    for (std::size_t s = interval.begin; s < interval.end; ++s) {
      ns += corrected_ns(factors, steps[s]);
    }
    took += interval.took_ns;
    predicted += ns;
    check.mean_abs_error += std::abs(ns - interval.took_ns);
  }
  if (took > 0) {
    check.sum_error = predicted / took - 1;
    check.mean_abs_error /= took;
  }
  return check;
}

}  // namespace metronome
