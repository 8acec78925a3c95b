// A setting of `metronome tune`, simulated at any load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/metrics/run_record.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"
#include "study/tune/tune_search.h"

namespace metronome {

// The requests that all settings face: a list for each seed, whose arrivals are stretched to the
// load asked for.
//
// Under a load that is too high the queue grows until the limit on the first token is broken; in a
// short trial that never happens, and in a longer one it happens by chance. So requests keep
// arriving for three hundred times that limit (for a part of a trial a part of it), with more
// requests than the scenario has if it takes more. A trace has as many requests as it has.
class TuneWorkloads {
 public:
  // Draws for seeds scenario.seed, scenario.seed + 1, ...; a trace, which no seed changes, is one.
  // Throws ConfigError for requests that do not arrive by a clock, or all at once.
  TuneWorkloads(const Scenario& scenario, int num_seeds);

  std::size_t num_seeds() const { return num_seeds_; }
  std::size_t num_requests() const { return num_seeds_ * num_given_; }  // that the scenario has
  double given_load() const { return given_load_; }                     // requests/s

  // Of a trial with `share` (more than 1 is more) of the scenario's requests or longer, at `load`
  // requests/s. Safe to call from several threads.
  std::shared_ptr<const Workload> at_load(std::size_t seed, double load, double share) const;
  // Whether a trial could have more requests than this one.
  bool can_be_longer(const Workload& workload) const;

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

  // With at least `num_requests` over all seeds. Judged are those that arrive behind the first
  // fifth, while which the engine fills up; in order of arrival, seed after seed. The percentiles
  // are theirs, too, of all seeds together, and the goodput is the load times their attainment.
  TuneTrial run(double load, std::size_t num_requests);

 private:
  void judge(const RunRecord& record, std::size_t first, std::vector<std::uint8_t>& good,
             std::vector<double>& ttft_ns) const;
  RunRecord run_once(const Workload& workload);

  Scenario scenario_;
  const TuneWorkloads& workloads_;
  std::unique_ptr<PreparedRun> run_;
};

}  // namespace metronome
