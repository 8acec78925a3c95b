// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/tune_work.h"

#include <algorithm>
#include <fmt/core.h>
#include <mutex>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "study/tune/tune_limit.h"
#include "system/parallel.h"

namespace metronome {

TuneWork::TuneWork(const Options& options, const TuneCandidates& candidates,
                   const TuneWorkloads& workloads, const std::string& trials_path)
    : options_(options),
      candidates_(candidates),
      workloads_(workloads),
      store_(trials_path),
      given_(workloads.at_load(0, workloads.given_load(), 1)),
      progress_(!options.is_quiet),
      began_(std::chrono::steady_clock::now()) {
  for (const SweepRun& run : candidates.plan.runs) {
    runs_.push_back(std::make_unique<TuneSetting>(run.scenario, workloads));
    lengths_.push_back(1);
    bounds_.push_back(step_bounds(run.scenario, runs_.back()->prepared(), *given_));
  }
}

void TuneWork::weigh(const std::vector<double>& costs) {
  const double highest = *std::max_element(costs.begin(), costs.end());
  is_by_cost_ = true;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    lengths_[i] = highest / costs[i];
    runs_[i]->lengthen(lengths_[i]);
  }
}

TuneOptions TuneWork::tuning() {
  TuneOptions tuning;
  tuning.attainment = options_.attainment;
  tuning.first_load = workloads_.given_load();
  for (const StepBounds& bounds : bounds_) tuning.expected_capacities.push_back(bounds.capacity);
  tuning.num_requests = workloads_.num_requests();
  tuning.has_drafts = settings().has_drafts();
  tuning.num_jobs = options_.num_jobs;
  tuning.is_over = [this] { return must_end(); };
  tuning.report = [this](const TuneProgress& progress) { show(progress); };
  return tuning;
}

TuneRunFn TuneWork::run_fn() {
  return [this](std::size_t setting, double load, std::size_t num_requests) {
    const std::string id = id_of(setting);
    if (std::optional<TuneTrial> known = store_.find(id, load, num_requests)) {
      ++num_trials_;
      return *known;
    }
    TuneTrial trial = trial_at({setting, load, num_requests});
    ++num_trials_;
    num_simulated_ += trial.num_simulated;
    store_.add(id, trial);
    return trial;
  };
}

std::string TuneWork::id_of(std::size_t setting) const {
  std::string id = fmt::format("{} {}", candidates_.plan.runs[setting].id, workloads_.num_seeds());
  if (lengths_[setting] != 1) id += fmt::format(" {}", lengths_[setting]);
  return id;
}

TuneTrial TuneWork::trial_at(const TrialPlace& place) {
  if (options_.elsewhere) {
    const std::optional<TuneTrial> trial = trial_of_line(options_.elsewhere(place));
    if (trial) return *trial;
  }
  return trial_here(place);
}

TuneTrial TuneWork::trial_here(const TrialPlace& place) {
  try {
    TuneTrial trial = runs_[place.setting]->run(place.load, place.num_requests);
    trial.num_requests = place.num_requests;
    return trial;
  } catch (const Interrupted&) {
    is_over_ = true;
    throw;
  }
}

std::string TuneWork::line_of(const TrialPlace& place) {
  return trial_line(id_of(place.setting), trial_here(place));
}

TunedSettings TuneWork::settings() const {
  TunedSettings settings;
  settings.bounds = bounds_;
  settings.names = candidates_.names;
  settings.given_load = workloads_.given_load();
  settings.attainment = options_.attainment;
  settings.is_by_cost = is_by_cost_;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const Scenario& scenario = candidates_.plan.runs[i].scenario;
    settings.scenarios.push_back(&scenario);
  }
  return settings;
}

Scenario TuneWork::with_fitting_length(std::size_t setting, std::string& note) const {
  return metronome::with_fitting_length(candidates_.plan.runs[setting].scenario,
                                        runs_[setting]->prepared(), *given_, note);
}

NearestLimits TuneWork::nearest_limits(const std::map<std::size_t, const TuneTrial*>& trials) {
  NearestLimits nearest;
  std::mutex mutex;
  const std::vector<std::pair<std::size_t, const TuneTrial*>> all(trials.begin(), trials.end());
  for_each_index(all.size(), options_.num_jobs, [&](std::size_t i) {
    if (must_end()) return;
    const auto& [setting, trial] = all[i];
    try {
      const std::optional<SloConfig> limits =
          runs_[setting]->nearest_limits(trial->load, trial->num_requests, options_.attainment);
      const std::lock_guard lock(mutex);
      nearest[setting] = limits;
    } catch (const Interrupted&) {
      is_over_ = true;
    }
  });
  return nearest;
}

std::optional<TuneBand> TuneWork::capacity_band(const TuneFinding& found) {
  return metronome::capacity_band(candidates_.plan.runs[found.setting].scenario, workloads_, found,
                                  tuning());
}

std::optional<TuneBand> TuneWork::attainment_band(const TuneLoadFinding& found) {
  return metronome::attainment_band(candidates_.plan.runs[found.setting].scenario, workloads_,
                                    found.trial, tuning());
}

bool TuneWork::must_end() {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
  if (interrupting_signal() != 0) is_over_ = true;
  if (options_.time_limit_s && elapsed.count() > *options_.time_limit_s) is_over_ = true;
  return is_over_;
}

void TuneWork::show(const TuneProgress& progress) {
  progress_.show(fmt::format("trial {}: {} at {} req/s, {} in SLO", progress.num_trials,
                             printable(candidates_.names[progress.setting]),
                             rate_text(progress.load), percent_text(progress.attainment, 2)),
                 static_cast<double>(progress.num_simulated), progress.num_left);
}

}  // namespace metronome
