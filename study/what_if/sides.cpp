// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/sides.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/figures.h"
#include "core/scenario/engine_product.h"
#include "reports/terminal/text.h"

namespace metronome {
namespace {

// The most that a change may spend where the goal does not say.
constexpr double kMostLater = 2;          // p99 of the first tokens
constexpr double kMostLonger = 2;         // gaps
constexpr double kLeastThroughput = 0.9;  // of the run's
constexpr double kLeastRate = 0.5;        // of answers during prefill
constexpr double kMostLatency = 1.1;      // of an answer with fewer drafts: gaps bring fewer tokens
// Of the mean and the p99 of first tokens where fewer requests may run at once: otherwise gaps only
// become waits for a slot.
constexpr double kMostLaterOfFewer = 1.1;

struct GuardRow {
  GoalSide side;
  const char* figure;
  double factor;  // times the run's figure
  bool is_least;
};
constexpr GuardRow kGuards[] = {
    {GoalSide::Ttft, "p99_ttft_ms", kMostLater, false},
    {GoalSide::Gap, "max_itl_ms", kMostLonger, false},
    {GoalSide::Gap, "p99_itl_ms", kMostLonger, false},
    {GoalSide::Rate, "decode_rate_during_prefill", kLeastRate, true},
    {GoalSide::Throughput, "output_throughput", kLeastThroughput, true}};

RunFacts facts_of(const Scenario& scenario) {
  return {.num_gpus = static_cast<double>(scenario.cost_model.tensor_parallel_size),
          .price_per_gpu_hour = scenario.price_per_gpu_hour};
}

// Whether the goal itself says what a side may cost. A limit on every gap does, also where the run
// breaks it: then the longest gets shorter, and the p99 is no longer than that.
bool is_said(const GuardRow& guard, const std::vector<Side>& goals) {
  return std::any_of(goals.begin(), goals.end(), [&guard](const Side& one) {
    if (one.goal.side != guard.side || !one.goal.class_name.empty()) return false;
    return one.goal.figure == "max_itl_ms" || (one.was_kept() && one.goal.figure == guard.figure);
  });
}

// The requests that may run at once.
std::int64_t most_running(const Scenario& scenario) {
  const Json active = scenario.value("scheduler.max_num_active_seqs");
  const std::int64_t limit = active.is_number_integer() ? active.get<std::int64_t>() : 0;
  return limit > 0 ? std::min<std::int64_t>(limit, scenario.engine.max_num_seqs)
                   : scenario.engine.max_num_seqs;
}

// Whether a change to fewer requests at once makes first tokens late, where no limit that the run
// keeps says how late they may be.
std::string serialising_loss(const Trial& trial, const WhatIf& what_if) {
  const Trial& baseline = what_if.baseline;
  const bool is_limited =
      std::any_of(what_if.sides.begin(), what_if.sides.end(), [](const Side& side) {
        return !side.is_guard && side.goal.side == GoalSide::Ttft && side.was_kept();
      });
  if (is_limited) return {};
  // Where no request waits for a slot, fewer of them change nothing.
  const std::int64_t slots = most_running(trial.scenario);
  const bool has_free_slots = trial.summary.peak_running < slots;
  if (has_free_slots || slots >= most_running(baseline.scenario)) return {};
  const Distribution& now = trial.summary.ttft;
  const Distribution& before = baseline.summary.ttft;
  const auto is_later = [&](double Distribution::*figure) {
    return now.*figure > kMostLaterOfFewer * before.*figure;
  };
  if (!is_later(&Distribution::mean_ms) && !is_later(&Distribution::p99_ms)) return {};
  return "requests wait for a slot instead: the mean TTFT is " + ms_text(now.mean_ms) +
         " ms, instead of " + ms_text(before.mean_ms) + ", and the p99 " + ms_text(now.p99_ms) +
         ", instead of " + ms_text(before.p99_ms);
}

std::string service_loss(const Trial& trial, const WhatIf& what_if) {
  const Trial& baseline = what_if.baseline;
  const Summary& now = trial.summary;
  const Summary& before = baseline.summary;
  if (now.completed < before.completed) {
    return count_text(now.completed, "request") + " complete, instead of " +
           grouped_text(before.completed);
  }
  const bool has_fewer_drafts =
      trial.scenario.speculative.num_drafts() < baseline.scenario.speculative.num_drafts();
  if (has_fewer_drafts && now.tpot.mean_ms > kMostLatency * before.tpot.mean_ms) {
    return "the mean TPOT is " + ms_text(now.tpot.mean_ms) + " ms, instead of " +
           ms_text(before.tpot.mean_ms);
  }
  return serialising_loss(trial, what_if);
}

// Whether an engine with the run's policy can be set to it.
std::string setting_loss(const Trial& trial, const WhatIf& what_if) {
  const std::string& policy = trial.scenario.scheduler.policy;
  const std::string& own = what_if.baseline.scenario.scheduler.policy;
  const EngineProduct& product = product_of(own);
  if (policy != own) {
    if (find_policy(policy)->predicts_steps) return "no engine has this policy";
    return product.flags == nullptr ? ""
                                    : "it is no setting of " + std::string(product.flags->server);
  }
  if (product.flags == nullptr || trial.changes.empty()) return {};
  const std::vector<FlagChanges> flags = flags_of(trial, what_if);
  return flags.front().is_comparison ? std::string() : flags.front().refusal;
}

std::string side_loss(const Side& side, double now) {
  const Goal& goal = side.goal;
  const std::string text = "the " + figure_text(goal, now);
  if (!side.is_guard) return "it breaks " + goal_words(goal) + ", which the run keeps";
  if (goal.side == GoalSide::Throughput) {
    return "the throughput is " + fixed_text(100 * (1 - now / side.before), 1) + " % lower";
  }
  const std::string run = figure_text(goal, side.before);
  return text +
         (goal.is_least ? ", less than half of the run's " : ", more than twice the run's ") +
         run.substr(short_goal_words(goal).size() + 1);
}

}  // namespace

double side_figure(const Goal& goal, const Trial& trial) {
  if (goal.side == GoalSide::Ttft && goal.class_name.empty() && goal.key.starts_with("slo.")) {
    return trial.reachable_ttft_ms;
  }
  return goal_figure(goal, trial.summary, facts_of(trial.scenario));
}

std::string figure_text(const Goal& goal, double now) {
  const Figure& shown = figure(goal.figure);
  std::string unit = shown.shown.unit.empty() ? "" : " " + shown.shown.unit;
  if (goal.side == GoalSide::Rate || goal.side == GoalSide::Throughput) unit = " tok/s";
  return short_goal_words(goal) + " " + value_text(shown, now) + unit;
}

std::vector<Side> sides_of(const std::vector<Goal>& goals, const WhatIf& what_if) {
  const Trial& baseline = what_if.baseline;
  std::vector<Side> sides;
  for (const Goal& goal : goals) sides.push_back({goal, false, side_figure(goal, baseline)});
  const std::vector<Side> own = sides;
  for (const GuardRow& row : kGuards) {
    // The requests out of reach have no goal for their first tokens.
    const bool leaves_out = row.side == GoalSide::Ttft && !what_if.out_of_reach.empty();
    if (!leaves_out && is_said(row, own)) continue;
    Goal goal;
    goal.side = row.side;
    goal.figure = row.figure;
    goal.is_least = row.is_least;
    const double before = side_figure(goal, baseline);
    if (std::isnan(before) || before <= 0) continue;
    goal.limit = row.factor * before;
    sides.push_back({std::move(goal), true, before});
  }
  return sides;
}

std::vector<Goal> broken_by(const Trial& trial, const WhatIf& what_if) {
  std::vector<Goal> broken;
  for (std::size_t i = 0; i < what_if.sides.size(); ++i) {
    const Side& side = what_if.sides[i];
    if (!side.is_guard && !side.goal.is_kept_by(trial.figures[i])) broken.push_back(side.goal);
  }
  return broken;
}

void judge(Trial& trial, const WhatIf& what_if) {
  trial.figures.clear();
  trial.excess = trial.loss_excess = 0;
  if (trial.is_cut_short) {
    trial.excess = trial.loss_excess = std::numeric_limits<double>::infinity();
    trial.loss = Loss::Service;
    trial.loss_text = "the throughput is more than a tenth lower";
    return;
  }
  std::pair<Loss, std::string> lost = {Loss::Service, service_loss(trial, what_if)};
  if (!lost.second.empty()) trial.loss_excess = std::numeric_limits<double>::infinity();
  for (const Side& side : what_if.sides) {
    const double now = side_figure(side.goal, trial);
    trial.figures.push_back(now);
    const double excess = side.goal.excess(now);
    trial.loss_excess = std::max(trial.loss_excess, excess);
    if (!side.is_guard) trial.excess = std::max(trial.excess, excess);
    if (!lost.second.empty() || side.goal.is_kept_by(now)) continue;
    if (side.is_guard) {
      lost = {Loss::Service, side_loss(side, now)};
    } else if (side.was_kept()) {
      lost = {Loss::Goal, side_loss(side, now)};
    }
  }
  trial.keeps_all = broken_by(trial, what_if).empty() && trial.summary.completed > 0;
  if (lost.second.empty()) lost = {Loss::NoSetting, setting_loss(trial, what_if)};
  if (lost.second.empty()) return;
  trial.loss = lost.first;
  trial.loss_text = std::move(lost.second);
}

std::string sides_text(const Trial& trial, const WhatIf& what_if) {
  std::string text;
  for (std::size_t i = 0; i < what_if.sides.size(); ++i) {
    if (what_if.sides[i].is_guard) continue;
    text += (text.empty() ? "" : ", ") + figure_text(what_if.sides[i].goal, trial.figures[i]);
  }
  return text;
}

std::string joined(const std::vector<Setting>& changes) {
  std::string text;
  for (const Setting& change : changes) text += (text.empty() ? "" : " ") + change.text();
  return text;
}

}  // namespace metronome
