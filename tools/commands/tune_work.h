// SPDX-License-Identifier: Apache-2.0
// The candidates of `metronome tune` and their trials.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "study/tune/tune_band.h"
#include "study/tune/tune_load.h"
#include "study/tune/tune_run.h"
#include "study/tune/tune_search.h"
#include "study/tune/tune_store.h"
#include "system/progress.h"
#include "tools/commands/tune_candidates.h"
#include "tools/commands/tune_output.h"

namespace metronome {

// A trial of a search: one setting at one load.
struct TrialPlace {
  std::size_t setting = 0;  // of the candidates
  double load = 0;          // requests/s
  std::size_t num_requests = 0;
};
// Has another process run a trial (TuneTrials), and returns its line. Empty: it was lost, and runs
// here. Called from several threads.
using TrialElsewhere = std::function<std::string(const TrialPlace& place)>;

// The trials of all candidates: simulated, or found in the folder of an earlier result.
class TuneWork {
 public:
  struct Options {
    double attainment = 0.99;
    int num_jobs = 1;
    std::optional<double> time_limit_s = {};
    bool is_quiet = false;
    TrialElsewhere elsewhere = {};  // empty: trials run here
  };

  // Prepares every candidate. The candidates and workloads outlive it. `trials_path`: the trials of
  // an earlier result. Throws ConfigError for a scenario that cannot be simulated.
  TuneWork(const Options& options, const TuneCandidates& candidates, const TuneWorkloads& workloads,
           const std::string& trials_path);

  // From here on all settings serve the same requests at loads in proportion to their costs
  // (tune_per_cost.h).
  void weigh(const std::vector<double>& costs);
  TuneOptions tuning();  // shows progress
  TuneRunFn run_fn();
  // Runs a trial here, and returns it as a line of JSON. Not at once for one setting.
  std::string line_of(const TrialPlace& place);
  TunedSettings settings() const;
  // See tune_limit.h.
  Scenario with_fitting_length(std::size_t setting, std::string& note) const;

  // TuneSetting::nearest_limits() of each setting that a trial of its own is given for; those that
  // the end of the search left are missing.
  NearestLimits nearest_limits(const std::map<std::size_t, const TuneTrial*>& trials);

  // Of the setting of a finding, see tune_band.h.
  std::optional<TuneBand> capacity_band(const TuneFinding& found);
  std::optional<TuneBand> attainment_band(const TuneLoadFinding& found);

  std::size_t size() const { return runs_.size(); }
  std::size_t num_trials() const { return num_trials_; }
  std::size_t num_reused() const { return store_.num_reused(); }
  std::size_t num_simulated() const { return num_simulated_; }  // requests, of trials not reused
  // Whether the time limit or a signal ended the search.
  bool is_over() const { return is_over_; }
  std::string trials_text() const { return store_.text(is_over_); }

 private:
  std::string id_of(std::size_t setting) const;
  TuneTrial trial_at(const TrialPlace& place);
  TuneTrial trial_here(const TrialPlace& place);
  bool must_end();
  void show(const TuneProgress& progress);

  Options options_;
  const TuneCandidates& candidates_;
  const TuneWorkloads& workloads_;
  TuneStore store_;
  std::shared_ptr<const Workload> given_;
  std::vector<std::unique_ptr<TuneSetting>> runs_;
  std::vector<double> lengths_;     // of the runs' trials
  bool is_by_cost_ = false;
  std::vector<StepBounds> bounds_;  // of the runs
  WorkProgress progress_;
  std::chrono::steady_clock::time_point began_;
  std::atomic<std::size_t> num_trials_ = 0;
  std::atomic<std::size_t> num_simulated_ = 0;
  std::atomic<bool> is_over_ = false;
};

}  // namespace metronome
