// SPDX-License-Identifier: Apache-2.0
#include "reports/files/noise_bands.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/metrics/figures.h"

namespace metronome {
const FigureBand* NoiseBands::find(std::string_view key) const {
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const FigureBand& band) { return band.key == key; });
  return found == figures.end() ? nullptr : &*found;
}

NoiseBands noise_bands(std::span<const Summary> draws) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  NoiseBands bands;
  bands.num_seeds = std::ssize(draws);
  for (const Figure& figure : all_figures()) {
    if (!figure.has_band || draws.empty()) continue;
    // Without limits, all draws lack a goodput.
    if (figure.value(draws.front(), {}).kind == FigureValue::Kind::Null) continue;
    FigureBand band{figure.key, kNone, kNone};
    for (const Summary& draw : draws) {
      const double value = figure.value(draw, {}).as_number();
      band.low = std::fmin(band.low, value);  // ignores NaN
      band.high = std::fmax(band.high, value);
    }
    bands.figures.push_back(std::move(band));
  }
  return bands;
}

}  // namespace metronome
