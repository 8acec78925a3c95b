// SPDX-License-Identifier: Apache-2.0
#include "study/tune/tune_per_cost.h"

#include <utility>

namespace metronome {

TuneResult tune_per_cost(std::size_t num_settings, const std::vector<double>& costs,
                         TuneOptions options, const TuneRunFn& run) {
  // A setting that costs w times as much as the first serves w times the load.
  const auto weight = [&costs](std::size_t setting) { return costs[setting] / costs.front(); };
  for (std::size_t i = 0; i < options.expected_capacities.size(); ++i) {
    options.expected_capacities[i] /= weight(i);
  }
  if (options.report) {
    options.report = [&, report = std::move(options.report)](TuneProgress progress) {
      progress.load *= weight(progress.setting);
      report(progress);
    };
  }
  const TuneRunFn run_for_cost = [&](std::size_t setting, double load, std::size_t num_requests) {
    TuneTrial trial = run(setting, load * weight(setting), num_requests);
    trial.load = load;
    return trial;
  };
  TuneResult result = tune(num_settings, options, run_for_cost);
  for (TuneFinding& finding : result.findings) {
    const double w = weight(finding.setting);
    for (double* load : {&finding.capacity, &finding.low, &finding.high}) *load *= w;
    for (TuneTrial& trial : finding.trials) trial.load *= w;
  }
  return result;
}

}  // namespace metronome
