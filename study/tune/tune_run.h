// SPDX-License-Identifier: Apache-2.0
// Simulates a setting of `metronome tune` at any load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/metrics/run_record.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"
#include "study/tune/tune_search.h"

namespace metronome {

// The requests that all settings serve: one list per seed, whose arrivals are scaled to the
// requested load.
//
// Under an excessive load the queue grows until the limit on TTFT is exceeded. In a short trial
// that never happens, and in a longer one it depends on chance. So requests arrive for three
// hundred times that limit (for a fraction of a trial, that fraction of it). If needed, a list has
// more requests than the scenario. A trace keeps its number of requests.
class TuneWorkloads {
 public:
  // Draws lists for seeds scenario.seed, scenario.seed + 1, ...; a trace does not depend on the
  // seed and has one list. Throws ConfigError if requests do not arrive at given times, all arrive
  // at once, or are those of sessions.
  TuneWorkloads(const Scenario& scenario, int num_seeds);

  std::size_t num_seeds() const { return num_seeds_; }
  std::size_t num_requests() const { return num_seeds_ * num_given_; }  // in the scenario
  double given_load() const { return given_load_; }                     // requests/s

  // The requests of a trial at `load` requests/s: at least `share` of the scenario's requests (may
  // be above 1). Thread-safe.
  // Without a `length` of 1, requests arrive for so many times as long.
  std::shared_ptr<const Workload> at_load(std::size_t seed, double load, double share,
                                          double length = 1) const;
  // Whether a longer trial could have more requests than this one.
  bool can_be_longer(const Workload& workload) const;

 private:
  // The list of a seed with at least `num_requests` requests; a trace's list is unchanged.
  std::shared_ptr<const Workload> drawn(std::size_t seed, std::size_t num_requests) const;

  Scenario scenario_;
  bool is_trace_ = false;
  std::size_t num_seeds_ = 1;
  std::size_t num_given_ = 0;
  double given_load_ = 0;
  double window_s_ = 0;  // of a whole trial
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::size_t, std::size_t>, std::shared_ptr<const Workload>> lists_;
};

// Limits that enough requests keep together: those of `slo` where they do, else the lowest, rounded
// up, for the requests that are least beyond any of them. `requests` are the completed ones of
// `num_judged`. nullopt: too few completed.
std::optional<SloConfig> limits_that_hold(std::vector<RequestRecord> requests,
                                          std::size_t num_judged, const SloConfig& slo,
                                          double attainment);

// One setting. Not thread-safe, but different settings share only the workloads.
class TuneSetting {
 public:
  // Throws ConfigError for a scenario that cannot be simulated.
  TuneSetting(const Scenario& scenario, const TuneWorkloads& workloads);

  // Runs at least `num_requests` over all seeds. The first fifth of the requests arrives while the
  // engine fills up and is not judged. The others are judged in order of arrival, seed after seed.
  // Percentiles cover the judged requests of all seeds, and goodput is the load times their
  // attainment.
  TuneTrial run(double load, std::size_t num_requests);

  // The limits that this share of the requests of such a trial keeps (limits_that_hold()).
  std::optional<SloConfig> nearest_limits(double load, std::size_t num_requests, double attainment);

  const PreparedRun& prepared() const { return *run_; }
  // From here on trials last so many times as long: another setting serves the same requests at so
  // many times the load.
  void lengthen(double factor) { length_ = factor; }
  // Of trials from here on (PreparedRun::scale_steps).
  void scale_steps(double factor) { run_->scale_steps(factor); }

 private:
  struct Sums;

  void judge(const RunRecord& record, std::size_t first, TuneTrial& trial, Sums& sums) const;
  void judge_run(TuneTrial& trial) const;
  void add_waits(const RunRecord& record, TuneTrial& trial, Sums& sums) const;
  RunRecord run_once(const Workload& workload);
  double share_of(std::size_t num_requests) const;  // of the scenario's

  Scenario scenario_;
  const TuneWorkloads& workloads_;
  std::unique_ptr<PreparedRun> run_;
  double length_ = 1;
};

}  // namespace metronome
