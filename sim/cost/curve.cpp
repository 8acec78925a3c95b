// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/curve.h"

#include <algorithm>

#include "sim/cost/interpolation.h"

namespace metronome {

double Curve::at(double value, bool& is_outside) const {
  return interpolate(find_bracket(x, value, is_outside), [this](std::size_t i) { return us[i]; });
}

Curve sum_of(std::span<const WeightedCurve> terms) {
  Curve sum;
  for (const WeightedCurve& term : terms) {
    sum.x.insert(sum.x.end(), term.curve->x.begin(), term.curve->x.end());
  }
  std::sort(sum.x.begin(), sum.x.end());
  sum.x.erase(std::unique(sum.x.begin(), sum.x.end()), sum.x.end());
  bool ignored = false;
  for (const double x : sum.x) {
    double us = 0;
    for (const WeightedCurve& term : terms) us += term.factor * term.curve->at(x, ignored);
    sum.us.push_back(us);
  }
  return sum;
}

Curve sum_of_measured(std::span<const WeightedCurve> terms) {
  Curve sum = sum_of(terms);
  for (const WeightedCurve& term : terms) {
    while (sum.x.back() > term.curve->x.back()) {
      sum.x.pop_back();
      sum.us.pop_back();
    }
  }
  return sum;
}

}  // namespace metronome
