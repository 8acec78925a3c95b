// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/least_squares.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace metronome {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Index at(std::size_t i) { return static_cast<Eigen::Index>(i); }

// Lawson and Hanson's method on a square triangular matrix. Columns have length 1 or 0.
class ActiveSet {
 public:
  ActiveSet(const Matrix& r, const Vector& d)
      : r_(r), d_(d), x_(Vector::Zero(r.cols())), is_free_(static_cast<std::size_t>(r.cols())) {}

  const Vector& solve() {
    const double tolerance = 1e-11 * std::max(d_.norm(), 1e-300);
    std::vector<bool> is_refused(is_free_.size());
    // Every round lowers the error, so no set repeats. Rounding can break this, hence the limit.
    const std::size_t max_rounds = 10 * is_free_.size() + 10;
    for (std::size_t round = 0; round < max_rounds; ++round) {
      const Vector gradient = r_.transpose() * (d_ - r_ * x_);
      const std::size_t next = steepest(gradient, tolerance, is_refused);
      if (next == is_free_.size()) break;
      if (set_free(next)) {
        is_refused.assign(is_refused.size(), false);
      } else {
        is_refused[next] = true;
      }
    }
    return x_;
  }

 private:
  // The column at 0 that lowers the error fastest; the number of columns if none does.
  std::size_t steepest(const Vector& gradient, double tolerance,
                       const std::vector<bool>& is_refused) const {
    std::size_t best = is_free_.size();
    double best_slope = tolerance;
    for (std::size_t j = 0; j < is_free_.size(); ++j) {
      if (is_free_[j] || is_refused[j] || gradient[at(j)] <= best_slope) continue;
      best = j;
      best_slope = gradient[at(j)];
    }
    return best;
  }

  // Least squares over the free columns; the other coefficients are 0.
  Vector solve_free() const {
    std::vector<std::size_t> columns;
    for (std::size_t j = 0; j < is_free_.size(); ++j) {
      if (is_free_[j]) columns.push_back(j);
    }
    Matrix part(r_.rows(), at(columns.size()));
    for (std::size_t k = 0; k < columns.size(); ++k) part.col(at(k)) = r_.col(at(columns[k]));
    const Vector solution = part.colPivHouseholderQr().solve(d_);
    Vector all = Vector::Zero(r_.cols());
    for (std::size_t k = 0; k < columns.size(); ++k) all[at(columns[k])] = solution[at(k)];
    return all;
  }

  // Frees a column and moves to the best point. Coefficients that would become negative stay at 0.
  // Returns false, with nothing changed, if the column helps only by rounding.
  bool set_free(std::size_t next) {
    is_free_[next] = true;
    Vector target = solve_free();
    if (target[at(next)] <= 0) {
      is_free_[next] = false;
      return false;
    }
    while (true) {
      double step = 1;
      std::size_t blocking = is_free_.size();
      for (std::size_t j = 0; j < is_free_.size(); ++j) {
        if (!is_free_[j] || target[at(j)] > 0) continue;
        const double reach = x_[at(j)] / (x_[at(j)] - target[at(j)]);
        if (reach >= step) continue;
        step = reach;
        blocking = j;
      }
      if (blocking == is_free_.size()) break;
      x_ += step * (target - x_);
      is_free_[blocking] = false;
      for (std::size_t j = 0; j < is_free_.size(); ++j) {
        if (x_[at(j)] <= 0) is_free_[j] = false;
        if (!is_free_[j]) x_[at(j)] = 0;
      }
      target = solve_free();
    }
    x_ = target;
    return true;
  }

  const Matrix& r_;
  const Vector& d_;
  Vector x_;
  std::vector<bool> is_free_;
};

// The value below which `share` of the values lie.
double quantile(std::vector<double>& values, double share) {
  const auto place = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

std::vector<double> products(const DesignMatrix& a, std::span<const double> x) {
  std::vector<double> result(a.num_rows());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto row = a.row(i);
    for (std::size_t j = 0; j < x.size(); ++j) result[i] += row[j] * x[j];
  }
  return result;
}

// Robust deviation of each group. For normal errors it equals the median absolute error / 0.6745
// and the 90th percentile / 1.645. The larger one counts: if a tenth of the errors are large, they
// are scatter, not hiccups.
std::vector<double> deviations(std::span<const double> errors, std::span<const int> groups) {
  constexpr double kLeast = 1e-9;  // for exact times
  const int num_groups = 1 + *std::max_element(groups.begin(), groups.end());
  std::vector<std::vector<double>> sizes(static_cast<std::size_t>(num_groups));
  for (std::size_t i = 0; i < errors.size(); ++i) {
    sizes[static_cast<std::size_t>(groups[i])].push_back(std::abs(errors[i]));
  }
  std::vector<double> result;
  for (std::vector<double>& group : sizes) {
    double deviation = kLeast;
    if (!group.empty()) {
      deviation =
          std::max({deviation, quantile(group, 0.5) / 0.6745, quantile(group, 0.9) / 1.645});
    }
    result.push_back(deviation);
  }
  return result;
}

double largest_change(const std::vector<double>& before, const std::vector<double>& after) {
  double change = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    change = std::max(change, std::abs(after[i] - before[i]) / std::max(before[i], 1e-300));
  }
  return change;
}

}  // namespace

std::vector<double> non_negative_least_squares(const DesignMatrix& a, std::span<const double> b) {
  METRONOME_CHECK(a.num_rows() == b.size(), "a target for each row");
  const std::size_t n = a.num_columns;
  if (n == 0 || b.empty()) return std::vector<double>(n);
  // One orthogonal transformation makes the rows triangular: |a x - b| becomes |R x - d| plus a
  // part independent of x. Columns differ by many orders of magnitude, so they are scaled to length
  // 1.
  Matrix rows = Eigen::Map<const RowMajor>(a.values.data(), at(b.size()), at(n));
  Vector scale = rows.colwise().norm();
  for (Eigen::Index j = 0; j < scale.size(); ++j) {
    if (scale[j] > 0) rows.col(j) /= scale[j];
  }
  const Eigen::HouseholderQR<Matrix> qr(rows);
  Vector target = Eigen::Map<const Vector>(b.data(), at(b.size()));
  target.applyOnTheLeft(qr.householderQ().adjoint());
  const Eigen::Index size = std::min(rows.rows(), rows.cols());
  const Matrix r = Matrix(qr.matrixQR().topRows(size).triangularView<Eigen::Upper>());
  const Vector d = target.head(size);
  const Vector x = ActiveSet(r, d).solve();
  std::vector<double> result(n);
  for (std::size_t j = 0; j < n; ++j) {
    if (scale[at(j)] > 0) result[j] = x[at(j)] / scale[at(j)];
  }
  return result;
}

RelativeFit fit_relative(const DesignMatrix& a, std::span<const double> times,
                         std::span<const int> groups) {
  METRONOME_CHECK(a.num_rows() == times.size() && groups.size() == times.size(), "one of each");
  constexpr double kHuber = 1.345;  // 95 % efficient for normal errors
  constexpr int kMaxRounds = 30;
  constexpr int kNumFinalRounds = 3;
  constexpr double kSettled = 1e-4;

  RelativeFit fit;
  fit.coefficients.assign(a.num_columns, 0);
  fit.is_hiccup.assign(times.size(), false);
  if (times.empty()) return fit;
  std::vector<double> unit(times.begin(), times.end());  // errors are relative to these
  std::vector<double> weights(times.size(), 1);
  std::vector<double> predicted = unit;
  int num_final = 0;
  for (int round = 0; round < kMaxRounds && num_final < kNumFinalRounds; ++round) {
    DesignMatrix scaled{a.num_columns, a.values};
    std::vector<double> target(times.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
      const double factor = std::sqrt(weights[i]) / unit[i];
      for (std::size_t j = 0; j < a.num_columns; ++j) {
        scaled.values[i * a.num_columns + j] *= factor;
      }
      target[i] = times[i] * factor;
    }
    fit.coefficients = non_negative_least_squares(scaled, target);
    const std::vector<double> before = std::move(predicted);
    predicted = products(a, fit.coefficients);
    const bool has_settled =
        largest_change(before, predicted) < kSettled || round >= kMaxRounds - kNumFinalRounds - 1;
    if (has_settled || num_final > 0) ++num_final;
    std::vector<double> errors(times.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
      // The unit is the prediction, limited to a factor of 2 around the time.
      unit[i] = std::clamp(predicted[i], times[i] / 2, times[i] * 2);
      errors[i] = (times[i] - predicted[i]) / unit[i];
    }
    const std::vector<double> deviation = deviations(errors, groups);
    for (std::size_t i = 0; i < times.size(); ++i) {
      const double size = std::abs(errors[i]) / deviation[static_cast<std::size_t>(groups[i])];
      fit.is_hiccup[i] = size > kHiccupDeviations;
      weights[i] = std::min(1.0, kHuber / size);
      if (num_final > 0 && fit.is_hiccup[i]) weights[i] = 0;
    }
  }
  return fit;
}

}  // namespace metronome
