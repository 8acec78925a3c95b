// SPDX-License-Identifier: Apache-2.0
// Measured times by two quantities, interpolated as sim/cost/curve.h says.
#pragma once

#include <cstddef>
#include <vector>

namespace metronome {

// Every combination of a row and a column was measured.
struct Grid {
  std::vector<double> rows;
  std::vector<double> columns;
  std::vector<double> us;  // row-major

  bool empty() const { return rows.empty(); }
  double cell(std::size_t row, std::size_t column) const {
    return us[row * columns.size() + column];
  }
  double at(double row, double column, bool& is_outside) const;
  // The time at one row, interpolated along the columns.
  double row_at(std::size_t row, double column, bool& is_outside) const;
};

}  // namespace metronome
