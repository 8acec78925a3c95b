// Where the figures of a run lie under other noise seeds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/metrics/summary.h"

namespace metronome {

// The lowest and the highest value of a figure of result.json: with as few seeds as one takes, any
// share between the ends would be made up between two of them. NaN where no seed has the figure.
struct FigureBand {
  std::string key;
  double low = 0;
  double high = 0;
};

struct NoiseBands {
  std::int64_t num_seeds = 0;  // 0: nothing was drawn, or once
  std::vector<FigureBand> figures;

  // nullptr: there is none.
  const FigureBand* find(std::string_view key) const;
};

// Of the same run under so many seeds: mean, percentiles and maximum of TTFT, TPOT, ITL and E2EL,
// and what is counted by the second.
NoiseBands noise_bands(std::span<const Summary> draws);

}  // namespace metronome
