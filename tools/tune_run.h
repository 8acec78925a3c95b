// A setting of `metronome tune`, simulated at any load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/run.h"
#include "core/scenario.h"
#include "core/workload.h"
#include "tools/tune_search.h"

namespace metronome {

// The requests that all settings face: a list for each seed, whose arrivals are stretched to the
// load asked for.
//
// Under a load that is too high the queue grows until the limit on the first token is broken; in a
// short trial that never happens. So a trial is as long as thirty times that limit, with more
// requests than the scenario has if it takes more: then no load that is found is more than a
// thirtieth too high. A trace has as many requests as it has.
class TuneWorkloads {
 public:
  // Draws for seeds scenario.seed, scenario.seed + 1, ...; a trace, which no seed changes, is one.
  // Throws ConfigError for requests that do not arrive by a clock, or all at once.
  TuneWorkloads(const Scenario& scenario, int num_seeds);

  std::size_t num_seeds() const { return num_seeds_; }
  std::size_t num_requests() const { return num_seeds_ * num_given_; }  // that the scenario has
  double given_load() const { return given_load_; }                     // requests/s

  // Of a trial with `share` of the scenario's requests, at `load` requests/s. Safe to call from
  // several threads.
  std::shared_ptr<const Workload> at_load(std::size_t seed, double load, double share) const;

 private:
  // The list of a seed with at least so many requests; a trace's as it is.
  std::shared_ptr<const Workload> drawn(std::size_t seed, std::size_t num_requests) const;

  WorkloadConfig config_;
  std::uint64_t seed_ = 0;
  bool is_trace_ = false;
  std::size_t num_seeds_ = 1;
  std::size_t num_given_ = 0;
  double given_load_ = 0;
  double window_s_ = 0;  // of a whole trial
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::size_t, std::size_t>, std::shared_ptr<const Workload>> lists_;
};

// One setting. Not for several threads at once; different ones share nothing but the workloads.
class TuneSetting {
 public:
  // Throws ConfigError for what cannot be simulated.
  TuneSetting(const Scenario& scenario, const TuneWorkloads& workloads);

  // With at least `num_requests` over all seeds. The good requests are in order of arrival, seed
  // after seed. Percentiles are the mean over the seeds of those of each run.
  TuneTrial run(double load, std::size_t num_requests);

 private:
  Scenario scenario_;
  const TuneWorkloads& workloads_;
  std::unique_ptr<PreparedRun> run_;
};

}  // namespace metronome
