// SPDX-License-Identifier: Apache-2.0
// Finds which of several settings serves one load best, among those within the SLO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/metrics/steadiness.h"
#include "study/tune/tune_search.h"

namespace metronome {

enum class TuneGoal : std::uint8_t { P99Itl, P99Ttft, MeanTpot, Cost, Gpus };

struct TuneLoadFinding {
  std::size_t setting = 0;
  TuneTrial trial;
  bool is_within = false;   // enough requests are good
  bool is_dropped = false;  // after the short trial
  bool is_pruned = false;   // never tried: one that costs less is within the SLO
  // The search ended before the setting served all requests.
  bool is_cut_short = false;
  bool may_equal_best = false;    // not surely worse than the one with the lowest figure
  bool is_equal_to_best = false;  // that, and the figures are the same to 1 %
};

struct TuneLoadResult {
  // First the best; then its equals, others within the SLO by the goal, and those outside of it.
  // Those that were cut short come behind others within the SLO, and equal none.
  std::vector<TuneLoadFinding> findings;
  std::size_t num_trials = 0;
  std::size_t num_simulated = 0;
  bool is_cut_short = false;  // as of TuneFinding
  TuneGoal goal = TuneGoal::P99Itl;
  SteadyBy by = SteadyBy::P99;  // the figure of the goal P99Itl
};

// Runs every setting at `load` on a third of the requests. Drops those that are outside the SLO
// with 95 % confidence, or worse by the goal than another in it with the same confidence; the
// others serve all requests. `costs`: of each setting, for the goal Cost: what an hour of it costs;
// for the goal Gpus: its GPUs. With these goals settings are tried from the lowest cost on, those
// of equal cost together, until one is within the SLO. So none that costs less is, among all
// settings. A figure may equal the best one if it is not higher with 95 % confidence, in a test on
// the runs, which served the same requests. It does if it is the same to 1 %; equal costs are the
// same number. Among equals the lower cadence_ms() wins, for the goals P99Itl and MeanTpot the
// lower p99 TTFT. Where the p99 of a setting in the SLO hides its stalls
// (core/metrics/steadiness.h), the goal P99Itl is the longest gap. TuneOptions::first_load and
// tolerance are not used.
TuneLoadResult tune_at_load(std::size_t num_settings, double load, TuneGoal goal,
                            const std::vector<double>& costs, const TuneOptions& options,
                            const TuneRunFn& run);

}  // namespace metronome
