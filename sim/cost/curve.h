// SPDX-License-Identifier: Apache-2.0
// Measured times by one quantity, held for interpolation. Look-ups interpolate microseconds
// linearly between the two measured points around a value. Below the first point its time holds, as
// kernel tiles are no smaller than the beginning of the grids. Beyond the last point the slope of
// the last doubling continues (never downwards) and the look-up sets `is_outside`; otherwise it
// leaves `is_outside` alone. Look-ups allocate nothing.
#pragma once

#include <span>
#include <vector>

namespace metronome {

// A function of one measured quantity.
struct Curve {
  std::vector<double> x;   // ascending; empty = not measured
  std::vector<double> us;  // one per x

  bool empty() const { return x.empty(); }
  double at(double value, bool& is_outside) const;
};

// The sum of curves, each times its factor, as a curve over all their points.
struct WeightedCurve {
  const Curve* curve;
  double factor;
};
Curve sum_of(std::span<const WeightedCurve> terms);

// The sum up to the last point that all terms have measured, so that look-ups beyond are outside.
// Requires terms with points.
Curve sum_of_measured(std::span<const WeightedCurve> terms);

}  // namespace metronome
