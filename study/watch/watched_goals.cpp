// SPDX-License-Identifier: Apache-2.0
#include "study/watch/watched_goals.h"

#include <algorithm>
#include <cmath>

namespace metronome {
namespace {

constexpr double kMsPerSecond = 1e3;

// The share of the values that a figure of gaps limits.
double share_of(const Goal& goal) {
  constexpr std::pair<std::string_view, double> kShares[] = {
      {"p50_itl_ms", 0.5}, {"p90_itl_ms", 0.9}, {"p95_itl_ms", 0.95}, {"p99_itl_ms", 0.99}};
  for (const auto& [figure, share] : kShares) {
    if (goal.figure == figure) return share;
  }
  return 1;
}

std::optional<QuantileBand> in_ms(const std::optional<QuantileBand>& seconds) {
  if (!seconds) return std::nullopt;
  return QuantileBand{seconds->estimate * kMsPerSecond, seconds->least * kMsPerSecond,
                      seconds->most * kMsPerSecond};
}

QuantileBand exactly(double value) { return {value, value, value}; }

std::optional<QuantileBand> if_known(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(exactly(value));
}

std::optional<QuantileBand> of_metrics(const Goal& goal, const LoadWindow& window) {
  switch (goal.side) {
    case GoalSide::Gap:
      return in_ms(quantile_band(window.all.histogram(ServerFigure::Itl), share_of(goal)));
    case GoalSide::Ttft:
      return in_ms(quantile_band(window.all.histogram(ServerFigure::Ttft), 0.99));
    case GoalSide::E2el:
      return in_ms(quantile_band(window.all.histogram(ServerFigure::E2el), 0.99));
    case GoalSide::Throughput: {
      const auto rate = window.rate(ServerFigure::OutputTokens);
      const bool is_idle = rate == 0.0 && window.all.number(ServerFigure::Running) == 0.0;
      return rate && !is_idle ? std::optional(exactly(*rate)) : std::nullopt;
    }
    case GoalSide::Tpot:
    case GoalSide::Rate:
    case GoalSide::Cost: break;
  }
  return std::nullopt;
}

std::optional<QuantileBand> of_log(const Goal& goal, const LogFigures& log) {
  if (goal.side == GoalSide::Rate) return if_known(log.rate_during_prefill);
  if (goal.side != GoalSide::Gap) return std::nullopt;
  const double share = share_of(goal);
  return if_known(share == 0.5    ? log.itl.p50_ms
                  : share == 0.9  ? log.itl.p90_ms
                  : share == 0.95 ? log.itl.p95_ms
                  : share == 0.99 ? log.itl.p99_ms
                                  : log.itl.max_ms);
}

GoalState state_of(const Goal& goal, const std::optional<QuantileBand>& value) {
  if (!value) return GoalState::Unknown;
  if (goal.is_least) return value->estimate >= goal.limit ? GoalState::Kept : GoalState::Broken;
  if (value->most <= goal.limit) return GoalState::Kept;
  // A bucket has what is over its lower bound.
  const bool is_over = value->least == value->most ? value->least > goal.limit
                                                   : value->least >= goal.limit;
  return is_over ? GoalState::Broken : GoalState::Undecided;
}

}  // namespace

std::string_view goal_state_name(GoalState state) {
  switch (state) {
    case GoalState::Kept: return "kept";
    case GoalState::Broken: return "broken";
    case GoalState::Undecided: return "undecided";
    case GoalState::Unknown: break;
  }
  return "unknown";
}

SloConfig usual_watch_goals() {
  SloConfig slo;
  slo.itl_ms = 200;
  slo.itl_share = 0.99;
  slo.ttft_ms = 2000;
  return slo;
}

std::vector<WatchedGoal> judge_goals(const SloConfig& slo, const LoadWindow* window,
                                     const LogFigures* log) {
  std::vector<WatchedGoal> judged;
  for (const Goal& goal : goals_of(slo)) {
    WatchedGoal& one = judged.emplace_back();
    one.goal = goal;
    if (window != nullptr) one.value = of_metrics(goal, *window);
    one.state = state_of(goal, one.value);
    const bool is_open = one.state == GoalState::Undecided || one.state == GoalState::Unknown;
    if (!is_open || log == nullptr) continue;
    const auto exact = of_log(goal, *log);
    if (!exact) continue;
    one.value = exact;
    one.is_of_log = true;
    one.state = state_of(goal, one.value);
  }
  return judged;
}

bool is_any_broken(const std::vector<WatchedGoal>& goals) {
  return std::any_of(goals.begin(), goals.end(),
                     [](const WatchedGoal& one) { return one.state == GoalState::Broken; });
}

}  // namespace metronome
