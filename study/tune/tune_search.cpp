// SPDX-License-Identifier: Apache-2.0
#include "study/tune/tune_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <set>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/metrics/steadiness.h"
#include "study/tune/tune_capacity.h"
#include "system/parallel.h"

namespace metronome {
namespace {

constexpr std::size_t kBracketShare = 8;   // of the requests: a trial that brackets has one in this
constexpr std::size_t kCoarseShare = 3;    // a trial that finds the coarse capacity
constexpr std::size_t kMinRequests = 60;   // of a trial; fewer say nothing
constexpr double kCoarseTolerance = 0.05;  // until the last phase
// Relative width of a capacity's band; a wider band asks for longer trials.
constexpr double kWideBand = 0.3;
// Its width while the capacity is only known roughly, so that the band may still become wider.
constexpr double kLooseWidth = 0.24;
constexpr double kLooseTolerance = 0.15;
constexpr double kFirstReach = 0.2;  // the first half width that is tried
constexpr double kBeyond = 1.25;     // later ones are this many times the expected half width
// Trials get this many times the requests with which the band should be narrow enough.
constexpr double kNarrower = 1.3;
constexpr double kLeastGrowth = 1.5;
constexpr double kMostGrowth = 2.5;
// Among equals, p99 ITL this close counts as the same.
constexpr double kSameItl = 1.02;

// Trials that a setting usually takes: until its capacity is bracketed, found, and measured.
constexpr double kBracketTrials = 5;
constexpr double kFindTrials = 4;
constexpr double kFindAgainTrials = 3;  // on more requests
constexpr double kFinalTrials = 6.5;
constexpr double kKnownTrials = 5.5;  // the same where trials of that length are known
// Before it is known: how much longer short trials become, and of how many settings one more is
// left.
constexpr double kExpectedGrowth = 1.5;
constexpr double kSettingsPerFinalist = 8;
constexpr double kNarrowRequests = 8000;  // of a trial with which a band is mostly narrow

// A trial's share in the sizes of the last trials, after one more.
constexpr double kMemory = 0.97;

struct TimeOver {};

bool is_better(const TuneFinding& a, const TuneFinding& b) {
  return a.capacity != b.capacity ? a.capacity > b.capacity : a.setting < b.setting;
}

double relative_width(const TuneFinding& finding) {
  return (finding.high - finding.low) / finding.capacity;
}

class Race {
 public:
  Race(std::size_t num_settings, const TuneOptions& options, const TuneRunFn& run)
      : options_(options), run_(run) {
    for (std::size_t i = 0; i < num_settings; ++i) {
      searches_.push_back(std::make_unique<CapacitySearch>(
          i, options_, [this, i](double load, std::size_t num_requests) {
            return trial(i, load, num_requests);
          }));
      left_.push_back(i);
    }
    planned_.resize(num_settings);
  }

  TuneResult run() {
    try {
      race();
    } catch (const TimeOver&) {
    }
    return result();
  }

 private:
  using Visit = std::function<void(CapacitySearch&)>;

  void race() {
    const std::size_t all = options_.num_requests;
    const std::size_t few = std::min(all, std::max(kMinRequests, all / kBracketShare));
    const std::size_t some = std::min(all, std::max(kMinRequests, all / kCoarseShare));
    plan(kBracketTrials * static_cast<double>(few) + kFindTrials * static_cast<double>(some),
         after_coarse());
    visit_left([&](CapacitySearch& search) {
      search.bracket(few);
      search.find(some, 1.3, kCoarseTolerance);
    });
    drop(few);
    if (left_.size() > 1) {
      plan(kFindAgainTrials * static_cast<double>(all), finals(expected_growth()));
      visit_left([&](CapacitySearch& search) { search.find(all, 1.06, kCoarseTolerance); });
      drop(0);
    }
    measure(all);
  }

  double expected_growth() const {
    return std::clamp(kNarrowRequests / static_cast<double>(options_.num_requests), 1.0,
                      kExpectedGrowth);
  }
  // Requests that the phases after the coarse one may ask for.
  double after_coarse() const {
    const auto size = static_cast<double>(options_.num_requests);
    const double num_left = 1 + static_cast<double>(left_.size() - 1) / kSettingsPerFinalist;
    return num_left * size *
           ((left_.size() > 1 ? kFindAgainTrials : 0) + final_trials(expected_growth()));
  }
  static double final_trials(double growth) {
    return growth > 1 ? growth * kFinalTrials : kKnownTrials;
  }
  // Of the last phase, with trials of `growth` times all requests.
  double finals(double growth) const {
    return static_cast<double>(left_.size() * options_.num_requests) * final_trials(growth);
  }

  // Lengthens trials until the band of the best is narrow, and measures who is left on as many.
  void measure(std::size_t num_requests) {
    std::size_t size = num_requests;
    for (const std::size_t i : left_) size = std::max(size, searches_[i]->finding().num_requests);
    double reach = kFirstReach;
    is_alone_ = true;
    plan(0,
         finals(expected_growth() * static_cast<double>(size) / static_cast<double>(num_requests)));
    CapacitySearch& first = *searches_[best_left()];
    double widest = kLooseWidth;
    for (bool grows = true; grows;) {
      first.find(size, 1.06, kLooseTolerance);
      first.add_band(reach);
      const double wanted = wanted_growth(first.finding());
      const double size_before = static_cast<double>(std::max(size, first.finding().num_requests));
      grows = lengthen(first.finding(), widest, size, reach);
      widest = kWideBand;
      // Trials may become longer again.
      const double last_size =
          grows ? std::max(static_cast<double>(size), wanted * size_before) : size_before;
      const double until_then =
          last_size > static_cast<double>(size) ? kFindTrials * static_cast<double>(size) : 0;
      plan(0, finals(last_size / static_cast<double>(num_requests)) + until_then);
    }
    is_alone_ = false;
    do {
      plan(static_cast<double>(size) * kFinalTrials, 0);
      planned_[best_left()] = static_cast<double>(size) * kKnownTrials / 2;
      visit_left([&](CapacitySearch& search) {
        search.find(size, 1.03, options_.tolerance);
        search.add_band(reach);
        search.finding().is_finalist = true;
      });
    } while (lengthen(searches_[best_left()]->finding(), kWideBand, size, reach));
    is_measured_ = true;
    mark_equals();
    join_twins(reach);
  }

  // Whether the band of the best is wider than `widest` and asks for longer trials: their size, and
  // half the width that the band should then have.
  static bool lengthen(const TuneFinding& best, double widest, std::size_t& size, double& reach) {
    const TuneTrial* trial = best.best_trial();
    size = std::max(size, best.num_requests);
    if (trial == nullptr || best.is_unbounded) return false;
    const double width = relative_width(best);
    const double growth = growth_for(width, widest, *trial);
    reach = std::clamp(kBeyond * width / 2 / std::sqrt(growth), 0.03, 2 * kFirstReach);
    if (growth <= 1) return false;
    // A trial has more requests than asked at high loads.
    size = static_cast<std::size_t>(
        std::ceil(static_cast<double>(std::max(size, trial->num_simulated)) * growth));
    return true;
  }

  // How many times as many requests a band of this width needs to be narrow.
  static double growth_to_narrow(double width) {
    return kNarrower * std::pow(width / kWideBand, 2);
  }
  static double wanted_growth(const TuneFinding& finding) {
    if (finding.capacity == 0 || finding.is_unbounded) return 1;
    return std::clamp(growth_to_narrow(relative_width(finding)), 1.0, kMostGrowth * kMostGrowth);
  }

  static double growth_for(double width, double widest, const TuneTrial& trial) {
    // Requests that hardly ever meet are served one by one: nothing worth knowing exactly.
    if (width <= widest || !trial.can_be_longer || trial.num_in_system < 1) return 1;
    const double room = 1.2 * static_cast<double>(kMaxTrialRequests) /
                        static_cast<double>(std::max<std::size_t>(trial.num_simulated, 1));
    const double wanted = growth_to_narrow(width);
    return std::min(std::clamp(wanted, kLeastGrowth, kMostGrowth), std::max(room, 1.0));
  }

  // Drops settings that serve the requests at the best one's capacity worse than that. `few`: a
  // size of trials that shows large differences; 0: none.
  void drop(std::size_t few) {
    const std::size_t best = best_left();
    const double load = searches_[best]->finding().capacity;
    if (load == 0 || left_.size() == 1) return;
    std::size_t size = 0;
    for (const std::size_t i : left_) size = std::max(size, searches_[i]->finding().num_requests);
    const TuneTrial& whole = searches_[best]->at(load, size);
    const TuneTrial* part = few > 0 ? &searches_[best]->at(load, few) : nullptr;
    if (part != nullptr && requests_for_batches(*part) > part->good.size()) part = nullptr;
    std::vector<char> is_worse(searches_.size(), 0);
    visit_left([&](CapacitySearch& search) {
      const TuneFinding& finding = search.finding();
      if (finding.setting == best) return;
      if (finding.capacity * (1 + kCoarseTolerance) >= load) return;
      is_worse[finding.setting] =
          finding.capacity == 0 ||
          (part != nullptr && is_good_more_often(*part, search.at(load, few))) ||
          is_good_more_often(whole, search.at(load, size));
    });
    std::erase_if(left_, [&](std::size_t i) { return is_worse[i] != 0; });
  }

  // Settings that differ in nothing that has an effect get the same figures. When the time is over
  // before all have them, the figures stay as they were measured.
  void join_twins(double reach) {
    std::vector<TuneFinding> measured;
    for (const std::size_t i : left_) measured.push_back(searches_[i]->finding());
    try {
      const std::set<std::size_t> twins = find_twins();
      if (twins.empty()) return;
      visit_left([&](CapacitySearch& search) {
        if (twins.contains(search.finding().setting)) search.add_band(reach);
      });
      mark_equals();
    } catch (const TimeOver&) {
      for (std::size_t i = 0; i < left_.size(); ++i) {
        searches_[left_[i]]->finding() = std::move(measured[i]);
      }
    }
  }

  // Each pair has a trial at the load of the best one. Most pairs that are no twins differ there,
  // and ask for no other trial.
  std::set<std::size_t> find_twins() {
    std::set<std::size_t> twins;
    const TuneFinding& best = searches_[best_left()]->finding();
    const TuneTrial* at_best = best.best_trial();
    if (at_best == nullptr || left_.size() == 1) return twins;
    const double load = at_best->load;
    const std::size_t size = at_best->num_requests;
    plan(static_cast<double>(size), 0);
    visit_left([&](CapacitySearch& search) { search.at(load, size); });
    for (std::size_t i = 0; i < left_.size(); ++i) {
      CapacitySearch& one = *searches_[left_[i]];
      for (std::size_t k = i + 1; k < left_.size(); ++k) {
        CapacitySearch& other = *searches_[left_[k]];
        if (!served_alike(one.at(load, size), other.at(load, size))) continue;
        if (one.serves_like(other)) twins.insert({left_[i], left_[k]});
      }
    }
    return twins;
  }

  // Marks the finalists that equal the one with the highest capacity. When the time is over before
  // it has compared all, those that it has not compared may equal the best.
  void mark_equals() {
    TuneFinding& best = searches_[best_left()]->finding();
    const TuneTrial* at_best = best.best_trial();
    for (const std::size_t i : left_) {
      TuneFinding& finding = searches_[i]->finding();
      const bool has_capacity = finding.capacity > 0;
      // The difference is below the tolerance of both capacities.
      finding.is_equal_to_best =
          has_capacity && finding.capacity * (1 + 2 * options_.tolerance) >= best.capacity;
      finding.may_equal_best =
          finding.is_equal_to_best || (has_capacity && finding.high >= best.low);
    }
    best.may_equal_best = best.is_equal_to_best = true;
    if (at_best == nullptr) return;
    std::vector<TuneTrial> trials(searches_.size());
    visit_left([&](CapacitySearch& search) {
      TuneFinding& finding = search.finding();
      if (!finding.may_equal_best) return;
      const TuneTrial& trial = search.at(at_best->load, at_best->num_requests);
      finding.may_equal_best = finding.is_equal_to_best || !is_good_more_often(*at_best, trial);
      trials[finding.setting] = trial;
    });
    std::vector<Distribution> itls;
    for (const std::size_t i : left_) {
      if (searches_[i]->finding().is_equal_to_best) itls.push_back(trials[i].summary.itl);
    }
    const SteadyBy by = steady_by(itls);
    for (const std::size_t i : left_) {
      searches_[i]->finding().cadence_at_best_ms =
          options_.has_drafts ? trials[i].summary.tpot.mean_ms
                              : steady_figure_ms(trials[i].summary.itl, by);
    }
  }

  std::size_t best_left() const {
    return *std::min_element(left_.begin(), left_.end(), [this](std::size_t a, std::size_t b) {
      return is_better(searches_[a]->finding(), searches_[b]->finding());
    });
  }

  void visit_left(const Visit& visit) {
    for_each_index(left_.size(), options_.num_jobs, [&](std::size_t i) {
      CapacitySearch& search = *searches_[left_[i]];
      try {
        visit(search);
      } catch (const TimeOver&) {
        search.settle();
      }
      const std::lock_guard lock(mutex_);
      planned_[left_[i]] = 0;
    });
    if (is_over_) throw TimeOver();
  }

  // Expects each setting to ask for `per_setting` requests now, and all for `later` together.
  void plan(double per_setting, double later) {
    for (const std::size_t i : left_) planned_[i] = per_setting;
    later_ = later;
  }

  TuneTrial trial(std::size_t setting, double load, std::size_t num_requests) {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = is_over_ || (options_.is_over && options_.is_over());
      if (is_over_) throw TimeOver();
    }
    TuneTrial trial;
    try {
      trial = run_(setting, load, num_requests);
    } catch (const Interrupted&) {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      throw TimeOver();
    }
    const std::lock_guard lock(mutex_);
    ++result_.num_trials;
    result_.num_simulated += trial.num_simulated;
    const auto asked = static_cast<double>(num_requests);
    recently_asked_ = kMemory * recently_asked_ + asked;
    recently_simulated_ = kMemory * recently_simulated_ + static_cast<double>(trial.num_simulated);
    // A setting that has not finished needs another trial like this one, at least half the time.
    planned_[setting] = std::max(planned_[setting] - asked, asked / 2);
    if (is_alone_) later_ = std::max(later_ - asked, 0.0);
    if (options_.report) report(setting, trial);
    return trial;
  }

  void report(std::size_t setting, const TuneTrial& trial) const {
    double num_left = later_;
    for (const double planned : planned_) num_left += planned;
    num_left *= recently_simulated_ / recently_asked_;
    options_.report({result_.num_trials, result_.num_simulated, num_left, setting, trial.load,
                     trial.attainment});
  }

  TuneResult result() {
    std::vector<TuneFinding>& findings = result_.findings;
    for (const auto& search : searches_) findings.push_back(std::move(search->finding()));
    const auto is_left = [this](const TuneFinding& finding) {
      return std::find(left_.begin(), left_.end(), finding.setting) != left_.end();
    };
    for (TuneFinding& finding : findings) {
      finding.is_cut_short = is_left(finding) && !is_measured_;
    }
    // 0: equal to the best; 1: others that were not dropped; 2: dropped.
    const auto rank = [&](const TuneFinding& finding) {
      return finding.is_equal_to_best ? 0 : is_left(finding) ? 1 : 2;
    };
    std::sort(findings.begin(), findings.end(), [&](const TuneFinding& a, const TuneFinding& b) {
      return rank(a) != rank(b) ? rank(a) < rank(b) : is_better(a, b);
    });
    put_steadiest_first(findings);
    return std::move(result_);
  }

  static void put_steadiest_first(std::vector<TuneFinding>& findings) {
    double least = std::numeric_limits<double>::infinity();
    for (const TuneFinding& finding : findings) {
      if (finding.is_equal_to_best) least = std::fmin(least, finding.cadence_at_best_ms);
    }
    const auto steadiest =
        std::find_if(findings.begin(), findings.end(), [least](const TuneFinding& finding) {
          return finding.is_equal_to_best && finding.cadence_at_best_ms <= kSameItl * least;
        });
    if (steadiest != findings.end()) std::rotate(findings.begin(), steadiest, steadiest + 1);
  }

  const TuneOptions& options_;
  const TuneRunFn& run_;
  std::vector<std::unique_ptr<CapacitySearch>> searches_;  // by setting
  std::vector<std::size_t> left_;                          // settings that may be the best
  bool is_measured_ = false;
  std::mutex mutex_;  // of all below
  bool is_over_ = false;
  bool is_alone_ = false;        // the best is measured before the others
  std::vector<double> planned_;  // requests that each setting may still ask for in this phase
  double later_ = 0;             // and all of them in the phases after it
  // Requests of the last trials. Those at loads far too high, at the beginning, have many more than
  // asked.
  double recently_asked_ = 0;
  double recently_simulated_ = 0;
  TuneResult result_;
};

}  // namespace

const TuneTrial* TuneFinding::best_trial() const {
  for (const TuneTrial& trial : trials) {
    if (trial.load == capacity) return &trial;
  }
  return nullptr;
}

const TuneTrial* TuneFinding::failing_trial() const {
  for (const TuneTrial& trial : trials) {
    if (trial.load > capacity) return &trial;
  }
  return nullptr;
}

TuneResult tune(std::size_t num_settings, const TuneOptions& options, const TuneRunFn& run) {
  METRONOME_CHECK(options.num_requests > 0 && options.first_load > 0 && options.attainment < 1,
                  "there is a load to begin at, and a share to reach");
  return Race(num_settings, options, run).run();
}

double cadence_ms(const TuneTrial& trial, bool has_drafts) {
  return has_drafts ? trial.summary.tpot.mean_ms : trial.summary.itl.p99_ms;
}

std::vector<std::size_t> pareto_front(const std::vector<TuneFinding>& findings, bool has_drafts) {
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const TuneTrial* mine = findings[i].best_trial();
    if (mine == nullptr) continue;
    const bool is_beaten = std::any_of(findings.begin(), findings.end(), [&](const auto& other) {
      const TuneTrial* theirs = other.best_trial();
      if (theirs == nullptr || theirs == mine) return false;
      const double their_ms = cadence_ms(*theirs, has_drafts);
      const double my_ms = cadence_ms(*mine, has_drafts);
      const bool is_as_good = theirs->goodput >= mine->goodput && their_ms <= my_ms;
      return is_as_good && (theirs->goodput > mine->goodput || their_ms < my_ms);
    });
    if (!is_beaten) front.push_back(i);
  }
  return front;
}

}  // namespace metronome
