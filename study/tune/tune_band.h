// SPDX-License-Identifier: Apache-2.0
// The answer of a search with steps as fast and as slow as nine in ten measured runs
// like it had.
#pragma once

#include <optional>
#include <string>

#include "core/run/time_accuracy.h"
#include "study/tune/tune_run.h"
#include "study/tune/tune_search.h"

namespace metronome {

struct Scenario;

struct TuneBand {
  TimeAccuracy accuracy;
  double fast_scale = 1;  // of step times
  double slow_scale = 1;
  // With these: the requests/s that the setting carries, or at one load the share of requests
  // within the SLO.
  double fast = 0;
  double slow = 0;

  // "... With steps 0.91 to 1.12 times as long it carries 13.0 to 11.2 requests/s".
  std::string capacity_text() const;
  std::string attainment_text() const;
};

// Searches a third of the requests for the capacity of the setting, to 5 %, at both ends. `options`
// are those of the search, which may end it. nullopt: the step times were never compared, the
// search ended, or there is no capacity.
std::optional<TuneBand> capacity_band(const Scenario& scenario, const TuneWorkloads& workloads,
                                      const TuneFinding& found, TuneOptions options);
// Repeats the trial at both ends.
std::optional<TuneBand> attainment_band(const Scenario& scenario, const TuneWorkloads& workloads,
                                        const TuneTrial& found, const TuneOptions& options);

}  // namespace metronome
