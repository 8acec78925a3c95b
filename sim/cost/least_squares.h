// SPDX-License-Identifier: Apache-2.0
// Least squares with non-negative coefficients, used to fit times. No token, pair or sequence makes
// a step shorter.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace metronome {

// Dense, row-major.
struct DesignMatrix {
  std::size_t num_columns = 0;
  std::vector<double> values;

  std::size_t num_rows() const { return num_columns == 0 ? 0 : values.size() / num_columns; }
  std::span<const double> row(std::size_t i) const {
    return std::span(values).subspan(i * num_columns, num_columns);
  }
  void add_row(std::span<const double> row) { values.insert(values.end(), row.begin(), row.end()); }
};

// The x >= 0 that minimises |a x - b|, by Lawson and Hanson's active set method (Solving Least
// Squares Problems, 1974, chapter 23). A linearly dependent column gets 0. Requires one row per
// entry of b.
std::vector<double> non_negative_least_squares(const DesignMatrix& a, std::span<const double> b);

// A measurement beyond this many robust deviations is a hiccup and carries no information.
constexpr double kHiccupDeviations = 6;

struct RelativeFit {
  std::vector<double> coefficients;  // one per column
  std::vector<bool> is_hiccup;       // one per row
};

// Fits times as sums of non-negative parts: the x >= 0 that minimises the squared errors of a x,
// relative to a x itself. Errors relative to the times would make fits to scattered times too
// short.
//
// Robust by reweighting: a row counts fully up to 1.345 deviations of its group (Huber). The
// deviation comes from the median and 90th percentile of the group's errors. After convergence,
// rows beyond kHiccupDeviations do not count at all.
//
// A group holds rows that scatter alike. In a single group, early large errors of a rare kind would
// be taken for hiccups. Requires positive times and groups numbered from 0.
RelativeFit fit_relative(const DesignMatrix& a, std::span<const double> times,
                         std::span<const int> groups);

}  // namespace metronome
