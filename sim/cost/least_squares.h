// Least squares with coefficients that are not negative: what times are fitted with, which no
// token, pair or sequence makes shorter.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace metronome {

// Dense, row by row.
struct DesignMatrix {
  std::size_t num_columns = 0;
  std::vector<double> values;

  std::size_t num_rows() const { return num_columns == 0 ? 0 : values.size() / num_columns; }
  std::span<const double> row(std::size_t i) const {
    return std::span(values).subspan(i * num_columns, num_columns);
  }
  void add_row(std::span<const double> row) { values.insert(values.end(), row.begin(), row.end()); }
};

// The x >= 0 that makes |a x - b| least, by Lawson and Hanson's active set method (Solving Least
// Squares Problems, 1974, chapter 23). A column that others make up gets 0. Requires as many rows
// as b has entries.
std::vector<double> non_negative_least_squares(const DesignMatrix& a, std::span<const double> b);

// Beyond this many robust deviations a measurement says nothing of what it measures: a hiccup.
constexpr double kHiccupDeviations = 6;

struct RelativeFit {
  std::vector<double> coefficients;  // of the columns
  std::vector<bool> is_hiccup;       // of the rows
};

// Times, as sums of non-negative parts: the x >= 0 that makes the squared errors of a x, relative
// to itself, least (relative to the times, fits to scattered times are too short). Robust by
// reweighting: a row counts in full up to 1.345 deviations of its group (Huber), which come from
// the group's median and 90th percentile of errors, and when that has settled not at all beyond
// kHiccupDeviations. A group holds rows that scatter alike: were they all one, the few of a rare
// kind that are off while the fit has not settled would be taken for hiccups. Requires positive
// times, groups from 0.
RelativeFit fit_relative(const DesignMatrix& a, std::span<const double> times,
                         std::span<const int> groups);

}  // namespace metronome
