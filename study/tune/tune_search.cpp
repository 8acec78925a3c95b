#include "study/tune/tune_search.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/base/error.h"
#include "core/base/parallel.h"

namespace metronome {
namespace {

constexpr std::size_t kMaxFinalists = 4;
constexpr std::size_t kMinRequests = 200;   // in a round; fewer are too uncertain
constexpr double kCoarseTolerance = 0.05;   // in all rounds except the last
constexpr double kLeastShare = 1.0 / 1024;  // times the first load: below it, there is no capacity
constexpr double kMostTimes = 1 << 20;      // times the first load: all requests at once
// Relative width of a capacity's band; a wider band asks for longer trials.
constexpr double kWideBand = 0.3;
constexpr double kLengthen = 2.5;
// Steps of the search around a capacity: the first step, and the growth factor.
constexpr double kFirstAround = 0.03;
constexpr double kAroundGrowth = 1.6;

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

// The capacity of one setting with at least a given number of requests.
class CapacitySearch {
 public:
  using RunAtFn = std::function<TuneTrial(double load, std::size_t num_requests)>;

  CapacitySearch(const TuneOptions& options, std::size_t num_requests, bool is_last_round,
                 const RunAtFn& run)
      : options_(options),
        num_requests_(num_requests),
        is_last_round_(is_last_round),
        tolerance_(is_last_round ? options.tolerance : kCoarseTolerance),
        run_(run) {}

  TuneFinding find(double first_load) {
    double load = first_load;
    double step = 2;
    while (!try_find(load, step)) {  // too few requests: restart with more
      const bool has_capacity = finding_.capacity > 0;
      load = has_capacity ? finding_.capacity : finding_.trials.back().load;
      step = has_capacity ? 1 + 2 * kFirstAround : 2;
    }
    finding_.num_requests = num_requests_;
    return std::move(finding_);
  }

 private:
  // False if trials must be longer first; they will be.
  bool try_find(double load, double step) {
    finding_ = {};
    return bisect(load, step) && (!is_last_round_ || finding_.capacity == 0 || add_band());
  }

  bool bisect(double load, double step) {
    double low = 0;   // meets the SLO
    double high = 0;  // does not
    const double least = options_.first_load * kLeastShare;
    const double most = options_.first_load * kMostTimes;
    while (low == 0 || high == 0) {
      if (meets(load)) {
        const TuneTrial& trial = finding_.trials.back();
        if (lengthen(trial, requests_for_batches(trial))) return false;
        low = load;
        if (load >= most) break;
        load *= step;
      } else {
        high = load;
        if (load <= least) break;
        load /= step;
      }
      step = std::min(2.0, step * step);
    }
    while (low > 0 && high > low * (1 + tolerance_)) {
      const double middle = std::sqrt(low * high);
      (meets(middle) ? low : high) = middle;
    }
    finding_.is_unbounded = high == 0;
    sort_trials();
    finding_.capacity = crossing(finding_.trials, options_.attainment);
    return true;
  }

  bool meets(double load) {
    TuneTrial& trial = finding_.trials.emplace_back(run_(load, num_requests_));
    trial.num_requests = num_requests_;
    return trial.attainment >= options_.attainment;
  }

  // Whether trials become longer, because this one judged fewer than `num_judged` requests.
  bool lengthen(const TuneTrial& trial, std::size_t num_judged) {
    if (!trial.can_be_longer || trial.good.size() >= num_judged) return false;
    // A quarter more than that, as requests that arrive while the engine fills up are not judged.
    num_requests_ = std::max(num_judged, num_requests_) * 5 / 4 + 1;
    return true;
  }

  void sort_trials() {
    std::sort(finding_.trials.begin(), finding_.trials.end(),
              [](const TuneTrial& a, const TuneTrial& b) { return a.load < b.load; });
  }

  AttainmentBounds bounds(const TuneTrial& trial) const {
    return attainment_bounds(trial,
                             clustering_near(finding_.trials, trial.load, options_.attainment));
  }

  // Tries loads on both sides until the capacity lies between them with certainty.
  bool add_band() {
    sure_low_ = sure_high_ = 0;
    const double middle = finding_.capacity;
    const double least = options_.first_load * kLeastShare;
    double load = middle;
    for (double step = kFirstAround; !finding_.is_unbounded; step *= kAroundGrowth) {
      load *= 1 + step;
      meets(load);
      sure_high_ = load;
      if (bounds(finding_.trials.back()).high < options_.attainment) break;
      if (load > options_.first_load * kMostTimes) break;
    }
    load = middle;
    for (double step = kFirstAround; load > least; step *= kAroundGrowth) {
      load /= 1 + step;
      meets(load);
      if (bounds(finding_.trials.back()).low >= options_.attainment) {
        sure_low_ = load;
        break;
      }
    }
    sort_trials();
    finding_.capacity = crossing(finding_.trials, options_.attainment);
    read_band();
    const TuneTrial& best = *finding_.best_trial();
    const auto more = static_cast<std::size_t>(kLengthen * static_cast<double>(best.good.size()));
    return finding_.high - finding_.low <= kWideBand * finding_.capacity || !lengthen(best, more);
  }

  // Interpolates linearly between the tried loads.
  void read_band() {
    const std::vector<TuneTrial>& trials = finding_.trials;
    const double target = options_.attainment;
    std::vector<AttainmentBounds> all;
    for (const TuneTrial& trial : trials) all.push_back(bounds(trial));
    const auto between = [&](std::size_t t, double at_t, double at_next) {
      const double share = (at_t - target) / (at_t - at_next);
      return trials[t].load + share * (trials[t + 1].load - trials[t].load);
    };
    std::size_t begin = 0;  // the first after sure_low_ that may be too high
    while (begin < all.size() && (trials[begin].load < sure_low_ || all[begin].low >= target)) {
      ++begin;
    }
    if (sure_low_ == 0) {
      finding_.low = 0;
    } else if (begin == all.size()) {
      finding_.low = trials.back().load;
    } else {
      finding_.low = between(begin - 1, all[begin - 1].low, all[begin].low);
    }
    std::size_t end = all.size();  // after the last before sure_high_ that may be within the SLO
    while (end > 0 && (trials[end - 1].load > sure_high_ || all[end - 1].high < target)) --end;
    finding_.high = trials.back().load;
    if (end > 0 && end < all.size()) {
      finding_.high = between(end - 1, all[end - 1].high, all[end].high);
    }
    finding_.low = std::min(finding_.low, finding_.capacity);
    finding_.high = std::max(finding_.high, finding_.capacity);
  }

  const TuneOptions& options_;
  std::size_t num_requests_;
  bool is_last_round_;
  double tolerance_;
  const RunAtFn& run_;
  TuneFinding finding_;
  // Loads certainly within the SLO and certainly too high; 0: none.
  double sure_low_ = 0;
  double sure_high_ = 0;
};

bool is_better(const TuneFinding& a, const TuneFinding& b) {
  return a.capacity != b.capacity ? a.capacity > b.capacity : a.setting < b.setting;
}

// Requests of each round: doubling up to all.
std::vector<std::size_t> round_sizes(std::size_t num_settings, std::size_t num_requests) {
  std::vector<std::size_t> sizes = {num_requests};
  for (std::size_t left = num_settings; left > kMaxFinalists; left = (left + 1) / 2) {
    const std::size_t fewer = sizes.back() / 2;
    if (fewer < kMinRequests) break;
    sizes.push_back(fewer);
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

// Finalists that may be the best must serve the same requests. A finalist with fewer requests than
// another is searched again with as many. `search` finds the capacity of a setting again.
void even_out(
    std::vector<TuneFinding>& findings, int num_jobs,
    const std::function<TuneFinding(const TuneFinding& old, std::size_t num_requests)>& search) {
  const TuneFinding& best = *std::min_element(findings.begin(), findings.end(), is_better);
  const double least = best.low;
  std::size_t most = 0;
  for (const TuneFinding& finding : findings) {
    if (finding.high >= least) most = std::max(most, finding.num_requests);
  }
  for_each_index(findings.size(), num_jobs, [&](std::size_t i) {
    const TuneFinding& finding = findings[i];
    const bool can_grow = finding.best_trial() != nullptr && finding.best_trial()->can_be_longer;
    if (finding.high < least || finding.num_requests >= most || !can_grow) return;
    findings[i] = search(finding, most);
  });
}

// Marks the finalists that equal the best. Finalists are first, the best of them foremost.
void mark_equals(const TuneOptions& options, std::vector<TuneFinding>& findings,
                 const TuneRunFn& run) {
  TuneFinding& best = findings.front();
  const TuneTrial* at_best = best.best_trial();
  best.is_equal_to_best = true;
  for_each_index(findings.size(), options.num_jobs, [&](std::size_t i) {
    TuneFinding& finding = findings[i];
    if (i == 0 || at_best == nullptr || finding.capacity == 0) return;
    // The difference is below the bisection's tolerance.
    const bool is_close = finding.capacity * (1 + options.tolerance) >= best.capacity;
    finding.is_equal_to_best =
        is_close ||
        (finding.high >= best.low &&
         !is_good_more_often(*at_best, run(finding.setting, at_best->load, at_best->num_requests)));
  });
}

}  // namespace

const TuneTrial* TuneFinding::best_trial() const {
  for (const TuneTrial& trial : trials) {
    if (trial.load == capacity) return &trial;
  }
  return nullptr;
}

std::vector<TuneFinding> tune(std::size_t num_settings, const TuneOptions& options,
                              const TuneRunFn& run, const std::function<void()>& poll) {
  METRONOME_CHECK(options.num_requests > 0 && options.first_load > 0 && options.attainment < 1,
                  "there is a load to begin at, and a share to reach");
  std::vector<TuneFinding> left(num_settings);
  for (std::size_t i = 0; i < num_settings; ++i) {
    left[i].setting = i;
    left[i].capacity = options.first_load;
  }
  std::vector<TuneFinding> dropped;
  const std::vector<std::size_t> sizes = round_sizes(num_settings, options.num_requests);
  std::mutex poll_mutex;
  const TuneRunFn polled_run = [&](std::size_t setting, double load, std::size_t num_requests) {
    if (poll) {
      const std::lock_guard lock(poll_mutex);
      poll();
    }
    return run(setting, load, num_requests);
  };
  for (std::size_t round = 0; round < sizes.size(); ++round) {
    const bool is_last = round + 1 == sizes.size();
    for_each_index(left.size(), options.num_jobs, [&](std::size_t i) {
      const std::size_t setting = left[i].setting;
      const CapacitySearch::RunAtFn run_at = [&](double load, std::size_t num_requests) {
        return polled_run(setting, load, num_requests);
      };
      const double begin = left[i].capacity > 0 ? left[i].capacity : options.first_load;
      CapacitySearch search(options, sizes[round], is_last, run_at);
      left[i] = search.find(begin);
      left[i].setting = setting;
      left[i].is_finalist = is_last;
    });
    if (is_last) {
      even_out(left, options.num_jobs, [&](const TuneFinding& old, std::size_t num_requests) {
        const CapacitySearch::RunAtFn run_at = [&](double load, std::size_t count) {
          return polled_run(old.setting, load, count);
        };
        CapacitySearch search(options, num_requests, true, run_at);
        TuneFinding finding = search.find(old.capacity);
        finding.setting = old.setting;
        finding.is_finalist = true;
        return finding;
      });
    }
    std::sort(left.begin(), left.end(), is_better);
    if (is_last) break;
    // Settings that the coarse search cannot distinguish from the last of the better half also
    // continue.
    std::size_t kept = std::max((left.size() + 1) / 2, std::min(left.size(), kMaxFinalists));
    const double least = left[kept - 1].capacity / (1 + kCoarseTolerance);
    while (kept < left.size() && left[kept].capacity >= least) ++kept;
    dropped.insert(dropped.begin(),
                   std::make_move_iterator(left.begin() + static_cast<std::ptrdiff_t>(kept)),
                   std::make_move_iterator(left.end()));
    left.resize(kept);
  }
  mark_equals(options, left, polled_run);
  left.insert(left.end(), std::make_move_iterator(dropped.begin()),
              std::make_move_iterator(dropped.end()));
  return left;
}

std::vector<std::size_t> pareto_front(const std::vector<TuneFinding>& findings) {
  const auto trial_of = [](const TuneFinding& finding) {
    return finding.is_finalist ? finding.best_trial() : nullptr;
  };
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const TuneTrial* mine = trial_of(findings[i]);
    if (mine == nullptr) continue;
    const bool is_beaten = std::any_of(findings.begin(), findings.end(), [&](const auto& other) {
      const TuneTrial* theirs = trial_of(other);
      if (theirs == nullptr || theirs == mine) return false;
      const bool is_as_good =
          theirs->goodput >= mine->goodput && theirs->p99_itl_ms <= mine->p99_itl_ms;
      return is_as_good &&
             (theirs->goodput > mine->goodput || theirs->p99_itl_ms < mine->p99_itl_ms);
    });
    if (!is_beaten) front.push_back(i);
  }
  return front;
}

}  // namespace metronome
