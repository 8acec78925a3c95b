// SPDX-License-Identifier: Apache-2.0
#include "study/tune/tune_band.h"

#include <fmt/core.h>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/scenario/scenario.h"

namespace metronome {
namespace {

// The band with no values yet. `setting` is prepared for that.
std::optional<TuneBand> band_of(const TuneSetting& setting, const TuneTrial& trial) {
  std::optional<TimeAccuracy> accuracy = setting.prepared().accuracy(trial.num_in_system);
  if (!accuracy) return std::nullopt;
  TuneBand band;
  band.fast_scale = 1 + accuracy->tpot.low;
  band.slow_scale = 1 + accuracy->tpot.high;
  band.accuracy = *std::move(accuracy);
  return band;
}

std::string text_of(const TuneBand& band, const std::string& outcome) {
  return fmt::format("{}. With steps {:.2f} to {:.2f} times as long {}", band.accuracy.text(),
                     band.fast_scale, band.slow_scale, outcome);
}

// Sets the band's values by what `value` says with scaled steps. nullopt: the search ended.
template <typename Value>
std::optional<TuneBand> with_values(TuneBand band, TuneSetting& setting,
                                    const std::function<bool()>& is_over, Value value) try {
  const auto at = [&](double scale) {
    setting.scale_steps(scale);
    return value();
  };
  band.fast = at(band.fast_scale);
  band.slow = at(band.slow_scale);
  if (is_over && is_over()) return std::nullopt;
  return band;
} catch (const Interrupted&) {
  return std::nullopt;
}

}  // namespace

std::string TuneBand::capacity_text() const {
  return text_of(*this,
                 fmt::format("it carries {} to {} requests/s", rate_text(fast), rate_text(slow)));
}

std::string TuneBand::attainment_text() const {
  return text_of(*this, fmt::format("{} to {} of requests are within the SLO",
                                    percent_text(fast, 1), percent_text(slow, 1)));
}

std::optional<TuneBand> capacity_band(const Scenario& scenario, const TuneWorkloads& workloads,
                                      const TuneFinding& found, TuneOptions options) {
  constexpr std::size_t kShare = 3;
  const TuneTrial* trial = found.best_trial();
  if (trial == nullptr || found.capacity == 0) return std::nullopt;
  TuneSetting setting(scenario, workloads);
  const std::optional<TuneBand> band = band_of(setting, *trial);
  if (!band) return std::nullopt;
  options.tolerance = 0.05;
  options.first_load = found.capacity;
  options.expected_capacities.clear();
  options.num_requests = (options.num_requests + kShare - 1) / kShare;
  options.report = {};
  return with_values(*band, setting, options.is_over, [&] {
    const TuneResult result =
        tune(1, options, [&](std::size_t, double load, std::size_t num_requests) {
          TuneTrial one = setting.run(load, num_requests);
          one.num_requests = num_requests;
          return one;
        });
    return result.findings.front().capacity;
  });
}

std::optional<TuneBand> attainment_band(const Scenario& scenario, const TuneWorkloads& workloads,
                                        const TuneTrial& found, const TuneOptions& options) {
  if (found.good.empty()) return std::nullopt;
  TuneSetting setting(scenario, workloads);
  const std::optional<TuneBand> band = band_of(setting, found);
  if (!band) return std::nullopt;
  return with_values(*band, setting, options.is_over,
                     [&] { return setting.run(found.load, found.num_requests).attainment; });
}

}  // namespace metronome
