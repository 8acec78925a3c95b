// SPDX-License-Identifier: Apache-2.0
// Finds which of several settings sustains the highest load within an SLO, with a confidence band.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "study/tune/tune_trial.h"

namespace metronome {

// Runs at least `num_requests` requests at a load, or all if there are fewer. Called from several
// threads, but for one setting from one thread at a time. For the same load and `num_requests`,
// every setting must serve the same requests. Throws Interrupted (core/base/command_errors.h) to
// end the search with what it has found.
using TuneRunFn =
    std::function<TuneTrial(std::size_t setting, double load, std::size_t num_requests)>;

// The work done so far, after a trial.
struct TuneProgress {
  std::size_t num_trials = 0;
  std::size_t num_simulated = 0;  // requests
  double num_left = 0;            // requests that the search still expects to simulate
  std::size_t setting = 0;        // of the trial
  double load = 0;
  double attainment = 0;
};

struct TuneOptions {
  double attainment = 0.99;  // required share of good requests; below 1
  double tolerance = 0.01;   // relative, of a capacity
  double first_load = 1;     // the first load of the search, requests/s
  // By setting: about the most it can carry. Where that is less than the first load, its search
  // begins there. Empty: unknown.
  std::vector<double> expected_capacities = {};
  std::size_t num_requests = 0;
  // A setting has drafts. Gaps then bring several tokens, so that equals and the front are compared
  // by cadence_ms().
  bool has_drafts = false;
  int num_jobs = 1;
  // Asked before each trial: whether the search ends now, with what it has found.
  std::function<bool()> is_over = {};
  // Called after each trial, from one thread at a time.
  std::function<void(const TuneProgress&)> report = {};
};

// The result for one setting.
struct TuneFinding {
  std::size_t setting = 0;
  std::size_t num_requests = 0;   // requested for each of `trials`
  bool is_finalist = false;       // not dropped: its band is known
  bool is_cut_short = false;      // is_over, or a trial that was interrupted, ended its search
  std::vector<TuneTrial> trials;  // the setting's longest, by load
  // The highest tried load within the SLO. Attainments are averaged where a load does better than a
  // lower one by chance. 0: not even a thousandth of the load where its search began is within the
  // SLO.
  double capacity = 0;
  bool is_unbounded = false;  // no tried load, up to all requests at once, was too high
  // Only for finalists, for other requests of the same kind: with 95 % confidence the capacity is
  // at least `low`; with 95 % confidence it is at most `high`. `low` is 0 if even at the lowest
  // tried load the requests are too few to confirm the target.
  double low = 0;
  double high = 0;
  // Not worse than the setting of the highest capacity, as far as these requests tell.
  bool may_equal_best = false;
  bool is_equal_to_best = false;  // that, and the capacities are the same to twice the tolerance
  // At the capacity of the setting that carries the most: the lower, the steadier. With drafts the
  // mean TPOT, else steady_figure_ms(). Of those equal to it.
  double cadence_at_best_ms = 0;

  // The trial at capacity; nullptr if there is none.
  const TuneTrial* best_trial() const;
  // The lowest tried load above the capacity, which is too high; nullptr if there is none.
  const TuneTrial* failing_trial() const;
};

struct TuneResult {
  // Finalists first; dropped settings by capacity. The first is the steadiest of those equal to the
  // setting with the highest capacity; then come the other equals, then the rest.
  std::vector<TuneFinding> findings;
  std::size_t num_trials = 0;
  std::size_t num_simulated = 0;  // requests of all trials
};

// A race. Every setting serves the same requests, so differences come from the settings.
//
// 1. Each setting's capacity, to 5 %: trials of an eighth of the requests bracket it, trials of a
//    third find it.
// 2. A setting is dropped when it serves the requests at the capacity of the best one worse than
//    that, by more than their scatter (95 % confidence). Who is left is compared again on all
//    requests.
// 3. If the band of the best is wider than three tenths, trials become as long as it takes, if
//    there are more requests. Those left are measured to 1 %, with bands, and compared again.
//
// A trial has more requests than asked when requests stay so long that the engine hardly filled.
//
// For the band, settings are tried at loads on both sides of the capacity. The search stops when
// with 95 % confidence enough requests are good (low side) or too few (high side). The band ends
// where that begins, interpolated between loads. So each end is wrong if the bounds of the
// attainment are (tune_trial.h), nominally once in twenty times. A finalist may equal the best if
// their bands overlap, unless it serves the same requests worse at the best one's capacity, by more
// than their scatter. Finalists that serve all requests alike share their trials, and so the band.
// This comes last: a search that ends there keeps what it measured.
//
// The result does not depend on num_jobs, unless is_over cuts the search short.
TuneResult tune(std::size_t num_settings, const TuneOptions& options, const TuneRunFn& run);

// p99 ITL, or with drafts mean TPOT.
double cadence_ms(const TuneTrial& trial, bool has_drafts);

// The Pareto front, as indices into `findings`. It has those with a trial at capacity whose goodput
// is higher, or whose cadence_ms() is lower, than that of every better one.
std::vector<std::size_t> pareto_front(const std::vector<TuneFinding>& findings, bool has_drafts);

}  // namespace metronome
