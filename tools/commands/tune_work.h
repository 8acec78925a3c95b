// SPDX-License-Identifier: Apache-2.0
// The candidates of `metronome tune` and their trials.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "study/sweep/sweep_plan.h"
#include "study/tune/tune_run.h"
#include "study/tune/tune_search.h"
#include "study/tune/tune_store.h"
#include "system/progress.h"
#include "tools/commands/tune_output.h"

namespace metronome {

// The candidate settings. Settings that resolve to the same scenario are one candidate.
struct TuneCandidates {
  SweepPlan plan;
  std::vector<std::string> names;  // of plan.runs: "chunked-512 scheduler.order=fcfs"
};

// Moves candidates that do not start, such as one whose steps leave no memory for a KV block, to
// plan.invalid. Throws the first one's ConfigError if none starts.
void leave_out_refused(TuneCandidates& candidates);

// The trials of all candidates: simulated, or found in the folder of an earlier result.
class TuneWork {
 public:
  struct Options {
    double attainment = 0.99;
    int num_jobs = 1;
    std::optional<double> time_limit_s;
    bool is_quiet = false;
  };

  // Prepares every candidate. The candidates and workloads outlive it. `trials_path`: the trials of
  // an earlier result. Throws ConfigError for a scenario that cannot be simulated.
  TuneWork(const Options& options, const TuneCandidates& candidates, const TuneWorkloads& workloads,
           const std::string& trials_path);

  TuneOptions tuning();  // shows progress
  TuneRunFn run_fn();
  TunedSettings settings() const;
  // See tune_limit.h.
  Scenario with_fitting_length(std::size_t setting, std::string& note) const;

  // TuneSetting::nearest_limits() of each setting that a trial of its own is given for; those that
  // the end of the search left are missing.
  NearestLimits nearest_limits(const std::map<std::size_t, const TuneTrial*>& trials);

  std::size_t size() const { return runs_.size(); }
  std::size_t num_trials() const { return num_trials_; }
  std::size_t num_reused() const { return store_.num_reused(); }
  std::size_t num_simulated() const { return num_simulated_; }  // requests, of trials not reused
  // Whether the time limit or a signal ended the search.
  bool is_over() const { return is_over_; }
  std::string trials_text() const { return store_.text(is_over_); }

 private:
  bool must_end();
  void show(const TuneProgress& progress);

  Options options_;
  const TuneCandidates& candidates_;
  const TuneWorkloads& workloads_;
  TuneStore store_;
  std::shared_ptr<const Workload> given_;
  std::vector<std::unique_ptr<TuneSetting>> runs_;
  std::vector<StepBounds> bounds_;  // of the runs
  WorkProgress progress_;
  std::chrono::steady_clock::time_point began_;
  std::atomic<std::size_t> num_trials_ = 0;
  std::atomic<std::size_t> num_simulated_ = 0;
  std::atomic<bool> is_over_ = false;
};

}  // namespace metronome
