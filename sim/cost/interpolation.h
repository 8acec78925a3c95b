// SPDX-License-Identifier: Apache-2.0
// Linear interpolation between measured points, as sim/cost/curve.h says.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/base/error.h"

namespace metronome {

// The smallest tile of a kernel. Values below it do not count as outside, even if not measured.
constexpr double kSmallestTile = 64;

// The two points around a value and the fraction of the way between them; above 1 beyond the last
// point.
struct Bracket {
  std::size_t low = 0;
  std::size_t high = 0;
  double share = 0;
};

template <class Key>
Bracket find_bracket(std::size_t size, const Key& key, double value, bool& is_outside) {
  METRONOME_CHECK(size > 0, "a table has at least one point");
  if (value <= key(0)) {
    if (value < key(0) && key(0) > kSmallestTile) is_outside = true;
    return {};
  }
  if (size == 1) {
    is_outside = is_outside || value > key(0);
    return {};
  }
  if (value > key(size - 1)) {
    is_outside = true;
    // The last two points may be one tile's tread or riser.
    std::size_t low = size - 2;
    while (low > 0 && key(low) > key(size - 1) / 2) --low;
    return {low, size - 1, (value - key(low)) / (key(size - 1) - key(low))};
  }
  // The first point above the value, or the last point.
  std::size_t low = 0;
  std::size_t high = size - 1;
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (key(middle) <= value ? low : high) = middle;
  }
  return {low, high, (value - key(low)) / (key(high) - key(low))};
}

inline Bracket find_bracket(const std::vector<double>& x, double value, bool& is_outside) {
  return find_bracket(
      x.size(), [&x](std::size_t i) { return x[i]; }, value, is_outside);
}

// at(i) is the time at point i.
template <class At>
double interpolate(const Bracket& bracket, const At& at) {
  if (bracket.share == 0) return at(bracket.low);
  if (bracket.share == 1) return at(bracket.high);
  const double low = at(bracket.low);
  const double high = at(bracket.high);
  if (bracket.share > 1) return high + std::max(high - low, 0.0) * (bracket.share - 1);
  return low * (1 - bracket.share) + high * bracket.share;
}

}  // namespace metronome
