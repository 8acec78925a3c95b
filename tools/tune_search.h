// Which of several settings carries the highest load within an SLO, and how sure that is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace metronome {

// One setting at one load.
struct TuneTrial {
  double load = 0;                 // requests/s
  std::vector<std::uint8_t> good;  // of each request, in order of arrival: whether it met the SLO

  double attainment = 0;  // share of good requests
  double goodput = 0;     // good requests/s
  double output_throughput = 0;
  double p99_ttft_ms = 0;
  double p99_itl_ms = 0;
};

// Runs `num_requests` requests or more at a load. Called from several threads, for a setting from
// one at a time. At one load the requests must be the same for every setting.
using TuneRunFn =
    std::function<TuneTrial(std::size_t setting, double load, std::size_t num_requests)>;

struct TuneOptions {
  double attainment = 0.99;  // share of requests that have to be good
  double tolerance = 0.01;   // of a capacity, relative
  double first_load = 1;     // where the search begins, requests/s
  std::size_t num_requests = 0;
  int num_jobs = 1;
  std::uint64_t seed = 0;  // of the resampling
};

// What became of one setting.
struct TuneFinding {
  std::size_t setting = 0;
  std::size_t num_requests = 0;   // in the last round that it was in
  bool is_finalist = false;       // that was the last of all
  std::vector<TuneTrial> trials;  // of that round, by load
  // The highest load within the SLO: all loads tried below it were. 0: not even a thousandth of the
  // first load was.
  double capacity = 0;
  bool is_unbounded = false;  // no load that was tried, up to all requests at once, was too high
  // Of finalists: 5th and 95th percentile of the capacity over resampled requests, and whether it
  // is the best one's, as far as these requests can tell.
  double low = 0;
  double high = 0;
  bool is_equal_to_best = false;

  // At capacity; nullptr when there is none.
  const TuneTrial* best_trial() const;
};

// Successive halving: in each round the capacity of every setting left is found by bisection on the
// load, and the better half goes on to a round with twice the requests, the last one with all of
// them. Every setting faces the same requests, so that differences are those of the settings.
//
// Bands come from resampling: blocks of neighbouring requests, twentieths of a trial, are drawn
// with replacement, the same for all settings and loads, and the capacity is read off the
// attainment of what was drawn. For that, finalists are tried at loads on both sides of their
// capacity, too.
//
// Finalists come first, best capacity first; of equals the setting that was given first. The result
// does not depend on num_jobs. `poll` is called between trials, from one thread at a time; what it
// throws ends the search.
std::vector<TuneFinding> tune(std::size_t num_settings, const TuneOptions& options,
                              const TuneRunFn& run, const std::function<void()>& poll = {});

// Settings that no other beats in both: indices into `findings` of those with a trial at capacity
// whose goodput is higher, or whose p99 ITL is lower, than that of every better one.
std::vector<std::size_t> pareto_front(const std::vector<TuneFinding>& findings);

}  // namespace metronome
