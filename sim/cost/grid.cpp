// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/grid.h"

#include "sim/cost/interpolation.h"

namespace metronome {

double Grid::row_at(std::size_t row, double column, bool& is_outside) const {
  return interpolate(find_bracket(columns, column, is_outside),
                     [this, row](std::size_t i) { return cell(row, i); });
}

double Grid::at(double row, double column, bool& is_outside) const {
  const Bracket across = find_bracket(columns, column, is_outside);
  return interpolate(find_bracket(rows, row, is_outside), [&](std::size_t i) {
    return interpolate(across, [this, i](std::size_t k) { return cell(i, k); });
  });
}

}  // namespace metronome
