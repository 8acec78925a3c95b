// SPDX-License-Identifier: Apache-2.0
// The range of a run's figures under other draws: of the noise of step times, of the requests, and
// of the error of step times.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/metrics/summary.h"

namespace metronome {

// The minimum and maximum of a figure of result.json. With the usual few seeds a quantile in
// between would be an interpolation of two of them. NaN if no seed has the figure.
struct FigureBand {
  std::string key;
  double low = 0;
  double high = 0;
};

struct FigureBands {
  // Of noise; with `step_scale` of requests. The run's own is among them. 0: there are no bands.
  std::int64_t num_seeds = 0;
  // Of replays with faster and slower steps. nullopt: the bands are of noise alone.
  std::optional<FigureBand> step_scale = {};
  std::vector<FigureBand> figures = {};
  // Figures that change far more than step times do, with their values under the fastest and the
  // slowest steps.
  std::vector<FigureBand> steep = {};

  // "of 8 noise seeds".
  std::string source() const;
  // "p99 TTFT is steep: 6,012.0 to 23,400.0 as steps take 0.93 to 1.09 times as long", one each.
  std::vector<std::string> steep_lines() const;
  // nullptr if there is none.
  const FigureBand* find(std::string_view key) const;
};

// Figures that change by more than the cube of the factor between fast and slow steps. Near a limit
// a small error decides.
std::vector<FigureBand> steep_figures(const Summary& fast, const Summary& slow,
                                      const FigureBand& step_scale);

// The bands over runs that differ only in what is drawn: mean, percentiles and maximum of TTFT,
// TPOT, ITL and E2EL, and the figures per second.
FigureBands figure_bands(std::span<const Summary> draws);

}  // namespace metronome
