// Which of several settings carries the highest load within an SLO, and how sure that is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "study/tune/tune_trial.h"

namespace metronome {

// Runs `num_requests` requests or more at a load, as far as there are so many. Called from several
// threads, for a setting from one at a time. The requests must be the same for every setting at the
// same load and `num_requests`.
using TuneRunFn =
    std::function<TuneTrial(std::size_t setting, double load, std::size_t num_requests)>;

struct TuneOptions {
  double attainment = 0.99;  // share of requests that have to be good; below 1
  double tolerance = 0.01;   // of a capacity, relative
  double first_load = 1;     // where the search begins, requests/s
  std::size_t num_requests = 0;
  int num_jobs = 1;
};

// What became of one setting.
struct TuneFinding {
  std::size_t setting = 0;
  std::size_t num_requests = 0;   // asked of each trial of the last round that it was in
  bool is_finalist = false;       // that was the last of all
  std::vector<TuneTrial> trials;  // of that round, by load
  // The highest load tried that is within the SLO, where a chance that favours a load over a lower
  // one is evened out. 0: not even a thousandth of the first load is.
  double capacity = 0;
  bool is_unbounded = false;  // no load that was tried, up to all requests at once, was too high
  // Of finalists, for other requests of the same kind: 95 % sure that the capacity is at least
  // `low`, 95 % sure that it is at most `high`. Low is 0 when not even at the lowest load tried
  // so few requests can show that enough of them are good.
  double low = 0;
  double high = 0;
  bool is_equal_to_best = false;  // as far as these requests can tell

  // At capacity; nullptr when there is none.
  const TuneTrial* best_trial() const;
};

// Successive halving: in each round the capacity of every setting left is found by bisection on the
// load, and the better half goes on to a round with twice the requests, the last one with all of
// them. Every setting faces the same requests, so that differences are those of the settings.
//
// A round has more requests than told, as far as there are more, when requests stay so long that
// the engine hardly filled, and the last one when a band comes out wider than three tenths; then
// all finalists that may be the best get as many.
//
// For their band, finalists are tried at loads on both sides of the capacity until one may be 95 %
// sure that enough requests are good (low side), or too few (high side); the ends of the band are
// where that begins, linear between loads. So an end is wrong when the bounds of the attainment are
// (tune_trial.h), meant to be once in twenty times. A finalist is equal to the best when their
// bands overlap, unless it serves the same requests worse at the best one's capacity, by more than
// their scatter explains.
//
// Finalists come first, best capacity first; of equals the setting that was given first. The result
// does not depend on num_jobs. `poll` is called between trials, from one thread at a time; what it
// throws ends the search.
std::vector<TuneFinding> tune(std::size_t num_settings, const TuneOptions& options,
                              const TuneRunFn& run, const std::function<void()>& poll = {});

// Finalists that no other beats in both: indices into `findings` of those with a trial at capacity
// whose goodput is higher, or whose p99 ITL is lower, than that of every better one. What was
// dropped served fewer requests, and is not compared.
std::vector<std::size_t> pareto_front(const std::vector<TuneFinding>& findings);

}  // namespace metronome
