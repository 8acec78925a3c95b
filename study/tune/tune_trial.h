// SPDX-License-Identifier: Apache-2.0
// A setting at one load, and what its trial says about requests outside the trial.
//
// Requests that are served together fail together: one stalled step breaks a limit for all decoding
// requests. So a thousand requests may carry as much information as ten independent ones. The
// effective number is estimated from batches of neighbours (batch means) as a design effect: the
// variance of the attainment over that of independent requests (Kish, Survey Sampling, 1965).
//
// The bounds of the attainment are Clopper and Pearson's for the effective number of requests,
// reduced by the estimate's degrees of freedom (Korn and Graubard, Survey Methodology 24, 1998).
// They also hold if hardly any request fails, unlike bounds from resampling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/metrics/figures.h"

namespace metronome {

struct Scenario;

// Trials have about this many requests at most: beyond it, more are not drawn.
constexpr std::size_t kMaxTrialRequests = 50'000;

// How many judged requests broke each limit. A request may break several.
struct SloMisses {
  std::size_t ttft = 0;
  std::size_t tpot = 0;
  std::size_t itl = 0;
  std::size_t e2el = 0;
  std::size_t not_completed = 0;  // refused, or too long for the engine
};

// Why requests waited in the queue, in seconds over all runs.
struct WaitReasons {
  double kv_cache = 0;      // it lacked blocks for the next one
  double max_num_seqs = 0;  // so many were running
  double steps = 0;         // else: steps had no room for them
};

struct TuneTrial {
  double load = 0;                 // requests/s
  std::size_t num_requests = 0;    // requested number
  std::vector<std::uint8_t> good;  // per request in order of arrival: 1 if it met the SLO
  std::size_t num_runs = 1;        // independent runs of equal length, consecutive in `good`
  double num_in_system = 0;        // mean number of waiting and running requests
  bool can_be_longer = false;      // whether more requests are available
  std::size_t num_simulated = 0;   // requests of all runs

  double attainment = 0;  // share of good requests
  double goodput = 0;     // attainment x load, requests/s
  // Has only figures that a trial measures, over all runs: throughputs, the busy share, and TTFT,
  // ITL and TPOT of the completed requests in `good`, NaN if there are none.
  Summary summary;
  std::vector<double> run_p99_ttft_ms;  // of each run
  std::vector<double> run_p99_itl_ms;
  std::vector<double> run_max_itl_ms;
  std::vector<double> run_mean_tpot_ms;
  SloMisses misses;
  WaitReasons waits;
};

// The figures of the trial; the scenario has its setting. Known are those of FigureList::Trial.
FigureValues figures_of(const TuneTrial& trial, const Scenario& scenario);

// Whether two settings served the same requests alike, to the nanosecond: what they differ in had
// no effect.
bool served_alike(const TuneTrial& a, const TuneTrial& b);

// How requests with the same outcome cluster.
struct Clustering {
  double design_effect = 1;      // 1: like independent requests
  std::size_t num_batches = 20;  // used for the estimate
};

// Requests that a trial needs so that its batches are nearly independent: each batch must last
// twice as long as a request stays.
std::size_t requests_for_batches(const TuneTrial& trial);

// The assumed clustering at a load, for a setting with these trials: the strongest clustering of
// the candidate trials. Candidates have at most one and a half times as many bad requests as
// `target` allows; the nearest trial above that is one too. Loads more than a fifth higher are
// excluded, as clusters grow with the load.
Clustering clustering_near(const std::vector<TuneTrial>& trials, double load, double target);

struct AttainmentBounds {
  double low = 0;   // 95 % confidence that more are good
  double high = 0;  // 95 % confidence that fewer are good
};

// Bounds for all requests that could have come at the trial's load. Clustering is that of the
// trial, or `near` if that is stronger: a trial without failures does not show how many would fail
// together.
AttainmentBounds attainment_bounds(const TuneTrial& trial, const Clustering& near);

// Whether requests are good more often in `a` than in `b` with 95 % confidence. Both served the
// same requests; this is a t test on the differences between their batches.
bool is_good_more_often(const TuneTrial& a, const TuneTrial& b);

// Whether a figure is lower in `a` than in `b` with 95 % confidence: a t test on the differences of
// their runs, which served the same requests. False with fewer than two runs.
bool is_lower(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace metronome
