// SPDX-License-Identifier: Apache-2.0
#include "study/tune/tune_load.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "core/base/command_errors.h"
#include "system/parallel.h"

namespace metronome {
namespace {

constexpr std::size_t kShortShare = 3;  // of the requests: the short trial has one in this
constexpr std::size_t kShortRequests = 60;

class LoadRace {
 public:
  LoadRace(std::size_t num_settings, double load, TuneGoal goal, const std::vector<double>& costs,
           const TuneOptions& options, const TuneRunFn& run)
      : load_(load), costs_(costs), options_(options), run_(run) {
    result_.goal = goal;
    result_.findings.resize(num_settings);
    for (std::size_t i = 0; i < num_settings; ++i) result_.findings[i].setting = i;
  }

  TuneLoadResult run() {
    const std::size_t all = options_.num_requests;
    const std::size_t some = std::min(all, std::max(kShortRequests, all / kShortShare));
    if (has_costs()) {
      race_by_cost(some, all);
      note_cut_short(all);
      order();
      return std::move(result_);
    }
    // From one to all settings are left for the second phase: half of them are expected.
    later_ = all > some ? 0.5 * static_cast<double>(result_.findings.size() * all) : 0;
    visit_left(some);
    find_steady_figure();
    if (all > some && !result_.is_cut_short) {
      drop();
      later_ = 0;
      visit_left(all);
      find_steady_figure();
    }
    note_cut_short(all);
    order();
    return std::move(result_);
  }

 private:
  bool has_costs() const {
    return result_.goal == TuneGoal::Cost || result_.goal == TuneGoal::Gpus;
  }

  // Settings of equal cost after the other: a short trial tells those that are outside of the SLO
  // for certain.
  void race_by_cost(std::size_t some, std::size_t all) {
    std::map<double, std::vector<TuneLoadFinding*>> by_cost;
    for (TuneLoadFinding& finding : result_.findings) {
      by_cost[costs_[finding.setting]].push_back(&finding);
    }
    bool is_found = false;
    for (auto& [cost, findings] : by_cost) {
      if (is_found) {
        for (TuneLoadFinding* finding : findings) finding->is_dropped = finding->is_pruned = true;
        continue;
      }
      if (some < all) {
        visit(findings, some);
        for (TuneLoadFinding* finding : findings) {
          finding->is_dropped =
              !finding->trial.good.empty() && bounds(*finding).high < options_.attainment;
        }
        std::erase_if(findings, [](const TuneLoadFinding* one) { return one->is_dropped; });
      }
      visit(findings, all);
      is_found = std::any_of(findings.begin(), findings.end(),
                             [](const TuneLoadFinding* one) { return one->is_within; });
    }
    find_steady_figure();
  }

  void note_cut_short(std::size_t all) {
    for (TuneLoadFinding& finding : result_.findings) {
      finding.is_cut_short =
          result_.is_cut_short && !finding.is_dropped && finding.trial.num_requests < all;
    }
  }

  void visit_left(std::size_t num_requests) {
    std::vector<TuneLoadFinding*> left;
    for (TuneLoadFinding& finding : result_.findings) {
      if (!finding.is_dropped) left.push_back(&finding);
    }
    visit(left, num_requests);
  }

  void visit(const std::vector<TuneLoadFinding*>& left, std::size_t num_requests) {
    plan(static_cast<double>(left.size() * num_requests));
    for_each_index(left.size(), options_.num_jobs, [&](std::size_t i) {
      TuneLoadFinding& finding = *left[i];
      std::size_t size = num_requests;
      std::optional<TuneTrial> trial = run_trial(finding.setting, size);
      if (!trial) return;
      // Within the SLO, but the engine hardly filled.
      const std::size_t least = requests_for_batches(*trial);
      if (trial->attainment >= options_.attainment && trial->can_be_longer &&
          trial->good.size() < least) {
        const std::size_t longer = std::max(least, size) * 5 / 4 + 1;
        plan(static_cast<double>(longer));
        if (std::optional<TuneTrial> second = run_trial(finding.setting, longer)) {
          trial = std::move(second);
          size = longer;
        }
      }
      trial->num_requests = size;
      finding.is_within = trial->attainment >= options_.attainment;
      finding.trial = std::move(*trial);
    });
  }

  void plan(double num_requests) {
    const std::lock_guard lock(mutex_);
    planned_ += num_requests;
  }

  // nullopt: the search is over.
  std::optional<TuneTrial> run_trial(std::size_t setting, std::size_t num_requests) {
    {
      const std::lock_guard lock(mutex_);
      result_.is_cut_short = result_.is_cut_short || (options_.is_over && options_.is_over());
      if (result_.is_cut_short) return std::nullopt;
    }
    try {
      TuneTrial trial = run_(setting, load_, num_requests);
      note(setting, num_requests, trial);
      return trial;
    } catch (const Interrupted&) {
      const std::lock_guard lock(mutex_);
      result_.is_cut_short = true;
      return std::nullopt;
    }
  }

  void note(std::size_t setting, std::size_t num_requests, const TuneTrial& trial) {
    const std::lock_guard lock(mutex_);
    ++result_.num_trials;
    result_.num_simulated += trial.num_simulated;
    const auto asked = static_cast<double>(num_requests);
    num_asked_ += asked;
    planned_ -= asked;
    if (!options_.report) return;
    const double per_asked = static_cast<double>(result_.num_simulated) / num_asked_;
    options_.report({result_.num_trials, result_.num_simulated, (planned_ + later_) * per_asked,
                     setting, load_, trial.attainment});
  }

  // Chooses the figure of the goal P99Itl, by all that keep the SLO.
  void find_steady_figure() {
    std::vector<Distribution> itls;
    for (const TuneLoadFinding& finding : result_.findings) {
      if (finding.is_within) itls.push_back(finding.trial.summary.itl);
    }
    result_.by = steady_by(itls);
  }

  bool is_comparable(const TuneLoadFinding& a, const TuneLoadFinding& b) const {
    return a.trial.num_requests == b.trial.num_requests;
  }

  // Whether `a` is better by the goal than `b`, with 95 % confidence.
  bool is_surely_better(const TuneLoadFinding& a, const TuneLoadFinding& b) const {
    if (has_costs()) return costs_[a.setting] < costs_[b.setting];
    if (!is_comparable(a, b)) return false;
    return is_lower(run_figures(a), run_figures(b));
  }

  // The goal's figure of each run of a trial.
  const std::vector<double>& run_figures(const TuneLoadFinding& finding) const {
    const TuneTrial& trial = finding.trial;
    if (result_.goal == TuneGoal::P99Itl) {
      return result_.by == SteadyBy::Longest ? trial.run_max_itl_ms : trial.run_p99_itl_ms;
    }
    return result_.goal == TuneGoal::P99Ttft ? trial.run_p99_ttft_ms : trial.run_mean_tpot_ms;
  }

  double figure(const TuneLoadFinding& finding) const {
    switch (result_.goal) {
      case TuneGoal::P99Itl: return steady_figure_ms(finding.trial.summary.itl, result_.by);
      case TuneGoal::P99Ttft: return finding.trial.summary.ttft.p99_ms;
      case TuneGoal::MeanTpot: return finding.trial.summary.tpot.mean_ms;
      case TuneGoal::Cost:
      case TuneGoal::Gpus: break;
    }
    return costs_[finding.setting];
  }
  double second_figure(const TuneLoadFinding& finding) const {
    return result_.goal == TuneGoal::P99Itl || result_.goal == TuneGoal::MeanTpot
               ? finding.trial.summary.ttft.p99_ms
               : cadence_ms(finding.trial, options_.has_drafts);
  }

  // The finding with the lowest figure of those within the SLO for certain; nullptr: none.
  const TuneLoadFinding* sure_best() const {
    const TuneLoadFinding* best = nullptr;
    for (const TuneLoadFinding& finding : result_.findings) {
      if (bounds(finding).low < options_.attainment) continue;
      if (best == nullptr || figure(finding) < figure(*best)) best = &finding;
    }
    return best;
  }

  static AttainmentBounds bounds(const TuneLoadFinding& finding) {
    return attainment_bounds(finding.trial, {});
  }

  void drop() {
    const TuneLoadFinding* best = sure_best();
    std::vector<char> is_out(result_.findings.size(), 0);
    for (std::size_t i = 0; i < is_out.size(); ++i) {
      const TuneLoadFinding& finding = result_.findings[i];
      const bool is_worse = best != nullptr && best != &finding && is_surely_better(*best, finding);
      is_out[i] = bounds(finding).high < options_.attainment || is_worse ? 1 : 0;
    }
    // At least one serves all requests.
    if (std::count(is_out.begin(), is_out.end(), 0) == 0) return;
    for (std::size_t i = 0; i < is_out.size(); ++i) {
      result_.findings[i].is_dropped = is_out[i] != 0;
    }
  }

  void order() {
    std::vector<TuneLoadFinding>& findings = result_.findings;
    const auto is_before = [this](const TuneLoadFinding& a, const TuneLoadFinding& b) {
      if (a.is_within != b.is_within) return a.is_within;
      if (a.is_cut_short != b.is_cut_short) return b.is_cut_short;
      if (a.is_dropped != b.is_dropped) return b.is_dropped;
      if (!a.is_within) {
        return a.trial.attainment != b.trial.attainment
                   ? a.trial.attainment > b.trial.attainment
                   : a.trial.summary.ttft.p99_ms < b.trial.summary.ttft.p99_ms;
      }
      const double figure_a = figure(a);
      const double figure_b = figure(b);
      return figure_a != figure_b ? figure_a < figure_b : second_figure(a) < second_figure(b);
    };
    std::stable_sort(findings.begin(), findings.end(), is_before);
    if (findings.empty() || !findings.front().is_within) return;
    const TuneLoadFinding lowest = findings.front();
    for (TuneLoadFinding& finding : findings) {
      const bool is_lowest = finding.setting == lowest.setting;
      finding.may_equal_best = finding.is_within && !finding.is_dropped && !finding.is_cut_short &&
                               (is_lowest || !is_surely_better(lowest, finding));
      finding.is_equal_to_best =
          finding.may_equal_best && (is_lowest || is_same_figure(figure(lowest), figure(finding)));
    }
    std::stable_sort(findings.begin(), findings.end(),
                     [this](const TuneLoadFinding& a, const TuneLoadFinding& b) {
                       if (a.is_equal_to_best != b.is_equal_to_best) return a.is_equal_to_best;
                       return a.is_equal_to_best && second_figure(a) < second_figure(b);
                     });
  }

  double load_;
  const std::vector<double>& costs_;
  const TuneOptions& options_;
  const TuneRunFn& run_;
  std::mutex mutex_;      // of all below
  double planned_ = 0;    // requests that this phase still asks for
  double later_ = 0;      // and the next
  double num_asked_ = 0;  // so far
  TuneLoadResult result_;
};

}  // namespace

TuneLoadResult tune_at_load(std::size_t num_settings, double load, TuneGoal goal,
                            const std::vector<double>& costs, const TuneOptions& options,
                            const TuneRunFn& run) {
  return LoadRace(num_settings, load, goal, costs, options, run).run();
}

}  // namespace metronome
