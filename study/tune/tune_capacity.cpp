// SPDX-License-Identifier: Apache-2.0
#include "study/tune/tune_capacity.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace metronome {
namespace {

constexpr double kLeastShare = 1.0 / 1024;  // of where it begins: below it, there is no capacity
constexpr double kMostTimes = 1 << 20;      // times the first load: all requests at once
constexpr double kMoreBelow = 1.3;          // a band reaches further down than up
constexpr double kAroundGrowth = 1.6;       // of the steps to the ends of a band

// The highest load whose attainment is at least the target. Attainments that do not fall with the
// load are averaged first (isotonic regression: pools of neighbours, each with at most the
// attainment of the pool below).
double crossing(const std::vector<TuneTrial>& trials, double target) {
  struct Pool {
    double num_good = 0;
    double size = 0;
    double last_load = 0;
    double attainment() const { return num_good / size; }
  };
  std::vector<Pool> pools;
  for (const TuneTrial& trial : trials) {
    const auto size = static_cast<double>(trial.good.size());
    Pool pool = {trial.attainment * size, size, trial.load};
    while (!pools.empty() && pools.back().attainment() < pool.attainment()) {
      pool.num_good += pools.back().num_good;
      pool.size += pools.back().size;
      pools.pop_back();
    }
    pools.push_back(pool);
  }
  double load = 0;
  for (const Pool& pool : pools) {
    if (pool.attainment() >= target) load = pool.last_load;
  }
  return load;
}

// Where between two trials the share of bad requests reaches the one allowed. It grows about
// exponentially with the load near a capacity.
double interpolated(const TuneTrial& low, const TuneTrial& high, double target) {
  const auto log_bad = [](const TuneTrial& trial) {
    return std::log(1 - trial.attainment + 0.5 / static_cast<double>(trial.good.size()));
  };
  const double span = log_bad(high) - log_bad(low);
  const double share = span > 0 ? (std::log(1 - target) - log_bad(low)) / span : 0.5;
  return low.load * std::pow(high.load / low.load, std::clamp(share, 0.0, 1.0));
}

// The load at which a search begins: the first load or, where the setting cannot carry that, a
// half, a quarter ... of it. Loads far too high cost the most requests. All settings try the same
// loads.
double start_of(const TuneOptions& options, std::size_t setting) {
  if (options.expected_capacities.empty()) return options.first_load;
  const double share = options.expected_capacities[setting] / options.first_load;
  return options.first_load * std::exp2(std::round(std::log2(std::clamp(share, kLeastShare, 1.0))));
}

}  // namespace

CapacitySearch::CapacitySearch(std::size_t setting, const TuneOptions& options, RunAtFn run)
    : options_(options),
      run_(std::move(run)),
      start_(start_of(options, setting)),
      least_(start_ * kLeastShare),
      most_(options.first_load * kMostTimes) {
  finding_.setting = setting;
}

const TuneTrial& CapacitySearch::at(double load, std::size_t num_requests) {
  const auto known = trials_.find({num_requests, load});
  if (known != trials_.end()) return known->second;
  TuneTrial trial = run_(load, num_requests);
  trial.num_requests = num_requests;
  return trials_.emplace(std::pair(num_requests, load), std::move(trial)).first->second;
}

bool CapacitySearch::is_within(const TuneTrial& trial) const {
  return trial.attainment >= options_.attainment;
}

void CapacitySearch::bracket(std::size_t num_requests) {
  double low = 0;
  double high = 0;
  while (low == 0 || high == 0) {
    const TuneTrial& trial = at(start_, num_requests);
    // One request more may be bad than the target allows: few tell little.
    const double num_bad = (1 - trial.attainment) * static_cast<double>(trial.good.size());
    const double allowed = (1 - options_.attainment) * static_cast<double>(trial.good.size());
    if (num_bad <= allowed + 1) {
      low = start_;
      const bool is_short = trial.can_be_longer && requests_for_batches(trial) > trial.good.size();
      if (high > 0 || is_short || start_ >= most_) break;
      start_ *= 2;
    } else {
      high = start_;
      if (start_ <= least_) return;
      start_ = low > 0 ? low : start_ / 2;
    }
  }
}

// Whether trials become longer, because in this one the engine hardly filled.
bool CapacitySearch::grow_for(const TuneTrial& trial) {
  const std::size_t least = requests_for_batches(trial);
  if (!trial.can_be_longer || trial.good.size() >= least) return false;
  // A quarter more than that, as requests that arrive while the engine fills up are not judged.
  size_ = std::max(least, size_) * 5 / 4 + 1;
  return true;
}

// False if trials must be longer first; they will be.
bool CapacitySearch::find_bracket(double load, double step) {
  low_ = high_ = 0;
  while (low_ == 0 || high_ == 0) {
    const TuneTrial& trial = at(load, size_);
    if (is_within(trial)) {
      if (grow_for(trial)) {
        start_ = load;
        return false;
      }
      low_ = load;
      if (load >= most_) return true;
      load *= step;
    } else {
      high_ = load;
      if (load <= least_) return true;
      load /= step;
    }
    step = std::min(2.0, step * step);
  }
  return true;
}

// Tries where the share of bad requests should reach the one allowed, and a load one tolerance
// beyond, which closes the bracket.
void CapacitySearch::narrow(double tolerance) {
  bool is_beyond = false;
  bool was_within = false;
  while (low_ > 0 && high_ > low_ * (1 + tolerance)) {
    double load = std::sqrt(low_ * high_);
    if (is_beyond) {
      load = was_within ? low_ * (1 + tolerance) : high_ / (1 + tolerance);
    } else if (high_ > low_ * (1 + 2 * tolerance)) {
      const double edge = 1 + tolerance / 2;
      load = std::clamp(interpolated(at(low_, size_), at(high_, size_), options_.attainment),
                        low_ * edge, high_ / edge);
    }
    is_beyond = !is_beyond;
    was_within = is_within(at(load, size_));
    (was_within ? low_ : high_) = load;
  }
}

void CapacitySearch::settle() {
  if (!finding_.trials.empty() || trials_.empty()) return;
  size_ = trials_.rbegin()->first.first;
  update_finding();
  finding_.is_unbounded = false;
}

void CapacitySearch::update_finding() {
  finding_.num_requests = size_;
  finding_.trials.clear();
  for (const auto& [size_and_load, trial] : trials_) {
    if (size_and_load.first == size_) finding_.trials.push_back(trial);
  }
  finding_.is_unbounded = high_ == 0;
  finding_.capacity = crossing(finding_.trials, options_.attainment);
}

void CapacitySearch::find(std::size_t num_requests, double step, double tolerance) {
  size_ = std::max(size_, num_requests);
  while (!find_bracket(start_, step)) step = 2;
  narrow(tolerance);
  update_finding();
  if (finding_.capacity > 0) start_ = finding_.capacity;
}

bool CapacitySearch::serves_like(CapacitySearch& other) {
  if (size_ != other.size_) return false;
  std::vector<double> loads;
  for (const CapacitySearch* search : {this, &other}) {
    for (const TuneTrial& trial : search->finding_.trials) loads.push_back(trial.load);
  }
  // First those that both have tried, and the highest, where settings differ most.
  std::sort(loads.begin(), loads.end(), std::greater<>());
  const auto has_both = [&](double load) {
    return trials_.contains({size_, load}) && other.trials_.contains({size_, load});
  };
  std::stable_partition(loads.begin(), loads.end(), has_both);
  for (const double load : loads) {
    if (!served_alike(at(load, size_), other.at(load, size_))) return false;
  }
  for (CapacitySearch* search : {this, &other}) search->update_finding();
  return true;
}

AttainmentBounds CapacitySearch::bounds(const TuneTrial& trial) const {
  return attainment_bounds(trial,
                           clustering_near(finding_.trials, trial.load, options_.attainment));
}

// Tries loads on both sides until the capacity lies between them with certainty. Loads that were
// tried before count.
void CapacitySearch::add_band(double reach) {
  if (finding_.capacity == 0) return;
  const double middle = finding_.capacity;
  double sure_low = 0;
  double sure_high = 0;
  for (const TuneTrial& trial : finding_.trials) {
    const AttainmentBounds sure = bounds(trial);
    if (trial.load < middle && sure.low >= options_.attainment) sure_low = trial.load;
    if (trial.load > middle && sure_high == 0 && sure.high < options_.attainment) {
      sure_high = trial.load;
    }
  }
  double load = middle;
  for (double step = reach; sure_high == 0 && !finding_.is_unbounded; step *= kAroundGrowth) {
    load *= 1 + step;
    const TuneTrial trial = at(load, size_);
    update_finding();
    if (bounds(trial).high < options_.attainment || load > most_) sure_high = load;
  }
  load = middle;
  for (double step = kMoreBelow * reach; sure_low == 0 && load > least_; step *= kAroundGrowth) {
    load /= 1 + step;
    const TuneTrial trial = at(load, size_);
    update_finding();
    if (bounds(trial).low >= options_.attainment) sure_low = load;
  }
  read_band(sure_low, sure_high);
}

// Interpolates linearly between the tried loads.
void CapacitySearch::read_band(double sure_low, double sure_high) {
  const std::vector<TuneTrial>& trials = finding_.trials;
  const double target = options_.attainment;
  std::vector<AttainmentBounds> all;
  for (const TuneTrial& trial : trials) all.push_back(bounds(trial));
  const auto between = [&](std::size_t t, double at_t, double at_next) {
    const double share = (at_t - target) / (at_t - at_next);
    return trials[t].load + share * (trials[t + 1].load - trials[t].load);
  };
  std::size_t begin = 0;  // the first after sure_low that may be too high
  while (begin < all.size() && (trials[begin].load < sure_low || all[begin].low >= target)) {
    ++begin;
  }
  if (sure_low == 0) {
    finding_.low = 0;
  } else if (begin == all.size()) {
    finding_.low = trials.back().load;
  } else {
    finding_.low = between(begin - 1, all[begin - 1].low, all[begin].low);
  }
  std::size_t end = all.size();  // after the last before sure_high that may be within the SLO
  while (end > 0 && (trials[end - 1].load > sure_high || all[end - 1].high < target)) --end;
  finding_.high = trials.back().load;
  if (end > 0 && end < all.size()) {
    finding_.high = between(end - 1, all[end - 1].high, all[end].high);
  }
  finding_.low = std::min(finding_.low, finding_.capacity);
  finding_.high = std::max(finding_.high, finding_.capacity);
}

}  // namespace metronome
