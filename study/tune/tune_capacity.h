// SPDX-License-Identifier: Apache-2.0
// Finds the capacity of one setting: the highest load at which enough requests are good.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <utility>

#include "study/tune/tune_search.h"

namespace metronome {

class CapacitySearch {
 public:
  using RunAtFn = std::function<TuneTrial(double load, std::size_t num_requests)>;

  // `options` outlives the search.
  CapacitySearch(std::size_t setting, const TuneOptions& options, RunAtFn run);

  // Finds a load near the capacity, with few requests: within a factor of two.
  void bracket(std::size_t num_requests);
  // Finds the capacity to a relative tolerance with trials of at least `num_requests`, from the
  // load found before. `step`: the first factor between loads.
  void find(std::size_t num_requests, double step, double tolerance);
  // Adds the band to what find() found. `reach`: its expected half width, relative.
  void add_band(double reach);

  // Whether both serve every trial of either alike. Then each has the trials of both, and so the
  // same capacity; the band follows by add_band().
  bool serves_like(CapacitySearch& other);

  // Keeps what there is, because run() threw in find() or before.
  void settle();

  // The trial of that size at a load; run unless it has been.
  const TuneTrial& at(double load, std::size_t num_requests);

  TuneFinding& finding() { return finding_; }
  const TuneFinding& finding() const { return finding_; }

 private:
  bool is_within(const TuneTrial& trial) const;
  bool grow_for(const TuneTrial& trial);
  bool find_bracket(double load, double step);
  void narrow(double tolerance);
  void update_finding();
  AttainmentBounds bounds(const TuneTrial& trial) const;
  void read_band(double sure_low, double sure_high);

  const TuneOptions& options_;
  RunAtFn run_;
  TuneFinding finding_;
  std::map<std::pair<std::size_t, double>, TuneTrial> trials_;  // by size and load
  std::size_t size_ = 0;                                        // of the trials of the search
  double start_ = 0;                                            // the next load to begin at
  double least_ = 0;                                            // the lowest that is tried
  double most_ = 0;                                             // the highest
  double low_ = 0;   // the highest load that was within the SLO; 0: none
  double high_ = 0;  // the lowest that was not
};

}  // namespace metronome
