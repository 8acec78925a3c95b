// SPDX-License-Identifier: Apache-2.0
// The tables and files of `metronome tune`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "study/tune/tune_limit.h"
#include "study/tune/tune_load.h"
#include "study/tune/tune_search.h"

namespace metronome {

struct Scenario;

// The settings of a search, in its order.
struct TunedSettings {
  std::vector<std::string> names;
  std::vector<const Scenario*> scenarios;
  std::vector<StepBounds> bounds;
  double given_load = 0;  // the scenario's, requests/s
  double attainment = 0;
  bool is_by_cost = false;  // compared by the cost of tokens (tune_per_cost.h)
  bool has_price() const;
  bool has_drafts() const;           // of any setting, in any step
  bool has_different_sizes() const;  // in GPUs
};

// Whether the search of one ended early: it may be better or worse than the others.
template <typename Finding>
bool is_any_cut_short(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.is_cut_short; });
}

// The trial whose figures a table shows; nullptr: none.
inline const TuneTrial* shown_trial(const TuneFinding& finding) { return finding.best_trial(); }
inline const TuneTrial* shown_trial(const TuneLoadFinding& finding) {
  return finding.trial.good.empty() ? nullptr : &finding.trial;
}

// The requests that were asked of the longest of these trials. Figures of a shorter one, of a
// setting that was dropped early, look better than those of all requests, as a queue grows.
template <typename Finding>
std::size_t most_requests(const std::vector<Finding>& findings) {
  std::size_t most = 0;
  for (const Finding& finding : findings) {
    if (const TuneTrial* trial = shown_trial(finding)) most = std::max(most, trial->num_requests);
  }
  return most;
}

// Whether a setting meets the SLO only while requests rarely overlap, at less than the scenario's
// load. False for one whose search was cut short.
bool is_only_near_idle(const TuneFinding& finding, const TunedSettings& settings);
TuneLimit limit_of(const TuneFinding& finding, const TunedSettings& settings);

// Limits that hold at a load, by setting; nullopt: none do (TuneSetting::nearest_limits()).
using NearestLimits = std::map<std::size_t, std::optional<SloConfig>>;

// "TTFT 500 ms, every ITL 50 ms".
std::string slo_text(const SloConfig& slo);
std::string limits_text(const NearestLimits& nearest, std::size_t setting);
Json to_json(const SloConfig& slo);

// Whether a search to the end found no load within the SLO.
bool is_never_within(const TuneFinding& finding);

void print_capacities(std::ostream& out, const TuneResult& result, const TunedSettings& settings);
// The settings that are never within the SLO, at the lowest load that was tried.
void print_never_within(std::ostream& out, const TuneResult& result, const TunedSettings& settings,
                        const NearestLimits& nearest);
// "p99 ITL".
std::string_view goal_text(TuneGoal goal);
void print_at_load(std::ostream& out, const TuneLoadResult& result, const TunedSettings& settings);

// The setting whose output tokens cost least at its highest load; empty without prices, or with one
// setting.
std::string cheapest_text(const TuneResult& result, const TunedSettings& settings);

// Why the best setting meets the SLO only near idle, and which changes may help; wrapped.
std::string near_idle_text(const TuneResult& result, const TunedSettings& settings);
// Why no setting keeps the SLO at a load, and which changes may help; wrapped.
std::string outside_text(const TuneLoadResult& result, const TunedSettings& settings,
                         const NearestLimits& nearest);

// `most`: most_requests(). A trial of fewer is_short.
Json to_json(const TuneFinding& finding, const TunedSettings& settings,
             const NearestLimits& nearest, std::size_t most);
Json to_json(const TuneLoadFinding& finding, const TunedSettings& settings, std::size_t most);

}  // namespace metronome
