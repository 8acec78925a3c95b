// SPDX-License-Identifier: Apache-2.0
// The range of a run's figures under other noise seeds.
#pragma once

#include <cstdint>
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

struct NoiseBands {
  std::int64_t num_seeds = 0;  // 0: no noise, or only one seed
  std::vector<FigureBand> figures;

  // nullptr if there is none.
  const FigureBand* find(std::string_view key) const;
};

// The bands over runs that differ only in the noise seed: mean, percentiles and maximum of TTFT,
// TPOT, ITL and E2EL, and the figures per second.
NoiseBands noise_bands(std::span<const Summary> draws);

}  // namespace metronome
