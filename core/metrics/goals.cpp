// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/goals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/number_text.h"

namespace metronome {
namespace {

struct GapShare {
  double share;
  std::string_view figure;
};
constexpr GapShare kGapShares[] = {{0.5, "p50_itl_ms"},
                                   {0.9, "p90_itl_ms"},
                                   {0.95, "p95_itl_ms"},
                                   {0.99, "p99_itl_ms"},
                                   {1, "max_itl_ms"}};

// A key of the section as a side.
struct SideRow {
  GoalSide side;
  std::string_view key;
  std::optional<double> SloConfig::*member;
  std::string_view figure;  // of Gap without a share
  bool is_least;
  bool has_classes;  // classes may have their own
};
constexpr SideRow kSides[] = {
    {GoalSide::Gap, "slo.itl_ms", &SloConfig::itl_ms, "max_itl_ms", false, true},
    {GoalSide::Gap, "slo.longest_gap_ms", &SloConfig::longest_gap_ms, "max_itl_ms", false, false},
    {GoalSide::Rate, "slo.decode_rate", &SloConfig::decode_rate, "decode_rate_during_prefill", true,
     false},
    {GoalSide::Ttft, "slo.ttft_ms", &SloConfig::ttft_ms, "p99_ttft_ms", false, true},
    {GoalSide::Tpot, "slo.tpot_ms", &SloConfig::tpot_ms, "p99_tpot_ms", false, true},
    {GoalSide::E2el, "slo.e2el_ms", &SloConfig::e2el_ms, "p99_e2el_ms", false, true},
    {GoalSide::Throughput, "slo.output_throughput", &SloConfig::output_throughput,
     "output_throughput", true, false},
    {GoalSide::Cost, "slo.cost_per_million_output_tokens",
     &SloConfig::cost_per_million_output_tokens, "cost_per_million_output_tokens", false, false}};

Goal goal_of(const SideRow& row, const SloConfig& slo) {
  Goal goal;
  goal.side = row.side;
  goal.figure = row.figure;
  goal.limit = *(slo.*row.member);
  goal.is_least = row.is_least;
  goal.key = row.key;
  return goal;
}

std::string limit_text(double limit) {
  std::string text = grouped_text(limit, 3);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

bool is_known_share(double share) {
  return std::any_of(std::begin(kGapShares), std::end(kGapShares),
                     [share](const GapShare& one) { return one.share == share; });
}

bool Goal::is_kept_by(double value) const {
  return std::isnan(value) || (is_least ? value >= limit : value <= limit);
}

double Goal::excess(double value) const {
  if (std::isnan(value)) return 0;
  if (!is_least) return value / limit;
  return value > 0 ? limit / value : std::numeric_limits<double>::infinity();
}

std::vector<Goal> goals_of(const SloConfig& slo) {
  std::vector<Goal> goals;
  for (const SideRow& row : kSides) {
    const auto has_own = [&](const SloConfig& one) {
      return one.*row.member && one.*row.member != slo.*row.member;
    };
    const bool is_by_class =
        row.has_classes && std::any_of(slo.by_class.begin(), slo.by_class.end(), has_own);
    if (is_by_class) {
      for (const SloConfig& own : slo.by_class) {
        if (!(own.*row.member)) continue;
        goals.push_back(goal_of(row, own));
        goals.back().class_name = own.class_name;
      }
      continue;
    }
    if (!(slo.*row.member)) continue;
    Goal goal = goal_of(row, slo);
    if (row.member == &SloConfig::itl_ms && slo.itl_share) {
      for (const GapShare& share : kGapShares) {
        if (share.share == *slo.itl_share) goal.figure = share.figure;
      }
    }
    goals.push_back(std::move(goal));
  }
  return goals;
}

std::vector<Goal> run_goals_of(const SloConfig& slo) {
  std::vector<Goal> goals = goals_of(slo);
  const auto is_of_requests = [&slo](const Goal& goal) {
    const bool is_share = goal.key == "slo.itl_ms" && slo.judges_gaps_of_run();
    const auto is_run_key = [&goal](const RunGoalKey& one) {
      return goal.key == "slo." + std::string(one.key);
    };
    const auto keys = run_goal_keys();
    return !is_share && std::none_of(keys.begin(), keys.end(), is_run_key);
  };
  std::erase_if(goals, is_of_requests);
  return goals;
}

SloConfig with_options(SloConfig slo, const SloConfig& options) {
  for (const SideRow& row : kSides) {
    if (!(options.*row.member)) continue;
    slo.*row.member = options.*row.member;
    for (SloConfig& own : slo.by_class) own.*row.member = options.*row.member;
  }
  if (options.itl_share) slo.itl_share = options.itl_share;
  return slo;
}

double goal_figure(const Goal& goal, const Summary& summary, const RunFacts& facts) {
  if (goal.class_name.empty()) return figure(goal.figure).value(summary, facts).as_number();
  for (const GroupSummary& group : summary.classes) {
    if (group.name != goal.class_name) continue;
    switch (goal.side) {
      case GoalSide::Gap: return group.longest_gap_ms;
      case GoalSide::Ttft: return group.ttft.p99_ms;
      case GoalSide::Tpot: return group.tpot.p99_ms;
      case GoalSide::E2el: return group.e2el.p99_ms;
      case GoalSide::Rate:
      case GoalSide::Throughput:
      case GoalSide::Cost: break;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double goal_figure(const Goal& goal, const FigureValues& figures) {
  return goal.class_name.empty() ? figures.number(goal.figure)
                                 : std::numeric_limits<double>::quiet_NaN();
}

std::string goal_words(const Goal& goal) {
  const std::string limit = limit_text(goal.limit);
  const std::string of =
      goal.class_name.empty() ? std::string() : " of class '" + goal.class_name + "'";
  switch (goal.side) {
    case GoalSide::Gap: {
      for (const GapShare& share : kGapShares) {
        if (share.figure != goal.figure || share.share == 1) continue;
        return limit_text(100 * share.share) + " % of the gaps" + of + " within " + limit + " ms";
      }
      return "every gap" + of + " within " + limit + " ms";
    }
    case GoalSide::Ttft: return "the p99 TTFT" + of + " within " + limit + " ms";
    case GoalSide::Tpot: return "the p99 TPOT" + of + " within " + limit + " ms";
    case GoalSide::E2el: return "the p99 E2EL" + of + " within " + limit + " ms";
    case GoalSide::Rate: return "answers during prefill at " + limit + " tok/s or more";
    case GoalSide::Throughput: return "the throughput at " + limit + " output tok/s or more";
    case GoalSide::Cost: return "the cost of a million output tokens within " + limit;
  }
  return {};
}

std::string goal_words(std::span<const Goal> goals) {
  std::string text;
  for (std::size_t i = 0; i < goals.size(); ++i) {
    if (i > 0) text += i + 1 == goals.size() ? " and " : ", ";
    text += goal_words(goals[i]);
  }
  return text;
}

std::string short_goal_words(const Goal& goal) {
  const ShownFigure& shown = figure(goal.figure).shown;
  return (shown.words.empty() ? shown.name : shown.words) +
         (goal.class_name.empty() ? std::string() : " of " + goal.class_name);
}

}  // namespace metronome
