// SPDX-License-Identifier: Apache-2.0
// Finds which of several settings has the cheapest tokens at its highest load within the SLO.
#pragma once

#include <cstddef>
#include <vector>

#include "study/tune/tune_search.h"

namespace metronome {

// As tune(), but settings are compared at loads in proportion to their costs, so that the first
// finding is the one whose capacity is the highest for its cost: its tokens are the cheapest.
// `costs`: of each setting for an hour, above 0. Loads, capacities and bands of the result are
// requests/s; TuneFinding::cadence_at_best_ms is at the best one's load for its cost. For a setting
// that costs less, `run` lengthens its trials (TuneSetting::lengthen) by the highest cost / its
// own, as all serve the same requests.
TuneResult tune_per_cost(std::size_t num_settings, const std::vector<double>& costs,
                         TuneOptions options, const TuneRunFn& run);

}  // namespace metronome
