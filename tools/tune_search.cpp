#include "tools/tune_search.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "core/error.h"
#include "core/rng.h"
#include "tools/parallel.h"

namespace metronome {
namespace {

constexpr std::size_t kMaxFinalists = 4;
constexpr std::size_t kMinRequests = 200;   // of a round: fewer tell too little
constexpr double kCoarseTolerance = 0.05;   // of all rounds but the last
constexpr double kLeastShare = 1.0 / 1024;  // of the first load: below, there is no capacity
constexpr double kMostTimes = 1 << 20;      // of the first load: all requests at once
constexpr int kNumResamples = 1000;
// As long as a request stays or longer: requests that are served together fail together.
constexpr std::int64_t kNumBlocks = 20;
// Of a finalist's capacity, tried for its band.
constexpr double kAround[] = {0.6, 0.75, 0.85, 0.92, 0.97, 1.04, 1.1, 1.2, 1.35, 1.6};
constexpr double kLowQuantile = 0.05;
constexpr double kHighQuantile = 0.95;

// The capacity of one setting with a given number of requests.
class CapacitySearch {
 public:
  CapacitySearch(const TuneOptions& options, std::size_t num_requests, bool is_last_round,
                 const std::function<TuneTrial(double load)>& run)
      : options_(options),
        num_requests_(num_requests),
        is_last_round_(is_last_round),
        tolerance_(is_last_round ? options.tolerance : kCoarseTolerance),
        run_(run) {}

  TuneFinding find(double first_load) {
    double low = 0;   // meets the SLO
    double high = 0;  // does not
    const double least = options_.first_load * kLeastShare;
    const double most = options_.first_load * kMostTimes;
    for (double load = first_load; low == 0 || high == 0;) {
      if (meets(load)) {
        low = load;
        if (load >= most) break;
        load *= 2;
      } else {
        high = load;
        if (load <= least) break;
        load /= 2;
      }
    }
    while (low > 0 && high > low * (1 + tolerance_)) {
      const double middle = std::sqrt(low * high);
      (meets(middle) ? low : high) = middle;
    }
    if (is_last_round_ && low > 0 && high > 0) {
      for (const double factor : kAround) meets(factor * low);
    }
    finding_.num_requests = num_requests_;
    finding_.capacity = low;
    finding_.is_unbounded = high == 0;
    std::sort(finding_.trials.begin(), finding_.trials.end(),
              [](const TuneTrial& a, const TuneTrial& b) { return a.load < b.load; });
    return std::move(finding_);
  }

 private:
  bool meets(double load) {
    const TuneTrial& trial = finding_.trials.emplace_back(run_(load));
    return trial.attainment >= options_.attainment;
  }

  const TuneOptions& options_;
  std::size_t num_requests_;
  bool is_last_round_;
  double tolerance_;
  const std::function<TuneTrial(double load)>& run_;
  TuneFinding finding_;
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

// Capacities of one setting over resampled requests.
class Resampling {
 public:
  Resampling(const TuneOptions& options, const TuneFinding& finding) : target_(options.attainment) {
    for (const TuneTrial& trial : finding.trials) {
      std::vector<Block>& blocks = blocks_.emplace_back();
      loads_.push_back(trial.load);
      const auto size = static_cast<std::int64_t>(trial.good.size());
      for (std::int64_t b = 0; b < kNumBlocks; ++b) {
        const auto begin = trial.good.begin() + b * size / kNumBlocks;
        const auto end = trial.good.begin() + (b + 1) * size / kNumBlocks;
        blocks.push_back({std::accumulate(begin, end, std::int64_t{0}), end - begin});
      }
    }
  }

  // Where the attainment of the drawn blocks crosses the target, linear between the loads tried.
  double capacity(const std::vector<std::size_t>& drawn) const {
    double load_before = 0;
    double attained_before = 1;
    for (std::size_t t = 0; t < loads_.size(); ++t) {
      std::int64_t good = 0;
      std::int64_t size = 0;
      for (const std::size_t block : drawn) {
        good += blocks_[t][block].num_good;
        size += blocks_[t][block].size;
      }
      if (size == 0) continue;  // of fewer requests than blocks, none was drawn
      const double attained = static_cast<double>(good) / static_cast<double>(size);
      if (attained < target_) {
        if (t == 0) return loads_[t];  // nothing below was tried
        const double share = (attained_before - target_) / (attained_before - attained);
        return load_before + share * (loads_[t] - load_before);
      }
      load_before = loads_[t];
      attained_before = attained;
    }
    return load_before;
  }

 private:
  struct Block {
    std::int64_t num_good = 0;
    std::int64_t size = 0;
  };

  double target_;
  std::vector<double> loads_;
  std::vector<std::vector<Block>> blocks_;  // [trial][block]
};

double quantile(std::vector<double> values, double share) {
  const auto at = values.begin() + std::llround(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Fills in the bands of the finalists, which come first, best first.
void add_bands(const TuneOptions& options, std::vector<TuneFinding>& findings) {
  std::vector<Resampling> resamplings;
  for (const TuneFinding& finding : findings) {
    if (finding.is_finalist) resamplings.emplace_back(options, finding);
  }
  Rng rng(options.seed, "tune");
  std::vector<std::vector<double>> capacities(resamplings.size());
  std::vector<std::size_t> drawn(static_cast<std::size_t>(kNumBlocks));
  for (int i = 0; i < kNumResamples; ++i) {
    for (std::size_t& block : drawn) {
      block = static_cast<std::size_t>(rng.uniform_int(0, kNumBlocks - 1));
    }
    for (std::size_t f = 0; f < resamplings.size(); ++f) {
      capacities[f].push_back(resamplings[f].capacity(drawn));
    }
  }
  for (std::size_t f = 0; f < resamplings.size(); ++f) {
    TuneFinding& finding = findings[f];
    finding.low = quantile(capacities[f], kLowQuantile);
    finding.high = quantile(capacities[f], kHighQuantile);
    std::vector<double> lead;  // of the best
    for (std::size_t i = 0; i < capacities[f].size(); ++i) {
      lead.push_back(capacities[0][i] - capacities[f][i]);
    }
    // Closer than the bisection can tell is equal, too.
    finding.is_equal_to_best =
        quantile(lead, kLowQuantile) <= options.tolerance * findings.front().capacity;
  }
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
  METRONOME_CHECK(options.num_requests > 0 && options.first_load > 0,
                  "there is a load to begin at");
  std::vector<TuneFinding> left(num_settings);
  for (std::size_t i = 0; i < num_settings; ++i) {
    left[i].setting = i;
    left[i].capacity = options.first_load;
  }
  std::vector<TuneFinding> dropped;
  const std::vector<std::size_t> sizes = round_sizes(num_settings, options.num_requests);
  std::mutex poll_mutex;
  for (std::size_t round = 0; round < sizes.size(); ++round) {
    const bool is_last = round + 1 == sizes.size();
    for_each_index(left.size(), options.num_jobs, [&](std::size_t i) {
      const std::size_t setting = left[i].setting;
      const std::function<TuneTrial(double)> run_at = [&](double load) {
        if (poll) {
          const std::lock_guard lock(poll_mutex);
          poll();
        }
        return run(setting, load, sizes[round]);
      };
      const double begin = left[i].capacity > 0 ? left[i].capacity : options.first_load;
      CapacitySearch search(options, sizes[round], is_last, run_at);
      left[i] = search.find(begin);
      left[i].setting = setting;
      left[i].is_finalist = is_last;
    });
    std::sort(left.begin(), left.end(), is_better);
    if (is_last) break;
    // Those that the coarse search cannot tell from the last of the better half go on as well.
    std::size_t kept = std::max((left.size() + 1) / 2, std::min(left.size(), kMaxFinalists));
    const double least = left[kept - 1].capacity / (1 + kCoarseTolerance);
    while (kept < left.size() && left[kept].capacity >= least) ++kept;
    dropped.insert(dropped.begin(),
                   std::make_move_iterator(left.begin() + static_cast<std::ptrdiff_t>(kept)),
                   std::make_move_iterator(left.end()));
    left.resize(kept);
  }
  add_bands(options, left);
  left.insert(left.end(), std::make_move_iterator(dropped.begin()),
              std::make_move_iterator(dropped.end()));
  return left;
}

std::vector<std::size_t> pareto_front(const std::vector<TuneFinding>& findings) {
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const TuneTrial* mine = findings[i].best_trial();
    if (mine == nullptr) continue;
    const bool is_beaten = std::any_of(findings.begin(), findings.end(), [&](const auto& other) {
      const TuneTrial* theirs = other.best_trial();
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
