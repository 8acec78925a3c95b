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
// every setting must serve the same requests.
using TuneRunFn =
    std::function<TuneTrial(std::size_t setting, double load, std::size_t num_requests)>;

struct TuneOptions {
  double attainment = 0.99;  // required share of good requests; below 1
  double tolerance = 0.01;   // relative, of a capacity
  double first_load = 1;     // the first load of the search, requests/s
  std::size_t num_requests = 0;
  int num_jobs = 1;
};

// The result for one setting.
struct TuneFinding {
  std::size_t setting = 0;
  std::size_t num_requests = 0;   // requested for each trial of the setting's last round
  bool is_finalist = false;       // whether that round was the final one
  std::vector<TuneTrial> trials;  // of that round, by load
  // The highest tried load within the SLO. Attainments are averaged where a load does better than a
  // lower one by chance. 0: not even a thousandth of the first load is within the SLO.
  double capacity = 0;
  bool is_unbounded = false;  // no tried load, up to all requests at once, was too high
  // Only for finalists, for other requests of the same kind: with 95 % confidence the capacity is
  // at least `low`; with 95 % confidence it is at most `high`. `low` is 0 if even at the lowest
  // tried load the requests are too few to confirm the target.
  double low = 0;
  double high = 0;
  bool is_equal_to_best = false;  // within the resolution of these requests

  // The trial at capacity; nullptr if there is none.
  const TuneTrial* best_trial() const;
};

// Successive halving: each round finds the capacity of every remaining setting by bisection on the
// load. The better half continues to a round with twice the requests; the last round has all of
// them. Every setting serves the same requests, so differences come from the settings.
//
// A round uses more requests than given, if available, when requests stay so long that the engine
// hardly filled. The last round also does if a band is wider than three tenths; then all finalists
// that may be the best get as many.
//
// For the band, finalists are tried at loads on both sides of the capacity. The search stops when
// with 95 % confidence enough requests are good (low side) or too few (high side). The band ends
// where that begins, interpolated between loads. So each end is wrong if the bounds of the
// attainment are (tune_trial.h), nominally once in twenty times. A finalist equals the best if
// their bands overlap, unless it serves the same requests worse at the best one's capacity, by more
// than their scatter.
//
// Finalists come first, ordered by capacity; equals keep the order of the settings. The result does
// not depend on num_jobs. `poll` is called between trials, from one thread at a time; an exception
// from it ends the search.
std::vector<TuneFinding> tune(std::size_t num_settings, const TuneOptions& options,
                              const TuneRunFn& run, const std::function<void()>& poll = {});

// The Pareto front of the finalists, as indices into `findings`. It has those with a trial at
// capacity whose goodput is higher, or whose p99 ITL is lower, than that of every better one.
// Dropped settings served fewer requests and are not compared.
std::vector<std::size_t> pareto_front(const std::vector<TuneFinding>& findings);

}  // namespace metronome
