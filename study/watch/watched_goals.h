// SPDX-License-Identifier: Apache-2.0
// Whether a server keeps goals, as far as its metrics and its log say.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/metrics/goals.h"
#include "study/watch/load_window.h"
#include "study/watch/log_tail.h"

namespace metronome {

enum class GoalState : std::uint8_t {
  Kept,
  Broken,
  Undecided,  // the limit is between the bounds between which the figure is
  Unknown,    // nothing says the figure
};
std::string_view goal_state_name(GoalState state);  // "kept"

struct WatchedGoal {
  Goal goal;
  GoalState state = GoalState::Unknown;
  // The figure, in the goal's unit: an estimate, and what it is between; nullopt: not known.
  std::optional<QuantileBand> value;
  bool is_of_log = false;  // it is exact, and of the log's steps
};

// The limits where none is given: MLPerf Inference's for Llama 2 70B on servers, 2 s for the p99 of
// first tokens and 200 ms for tokens behind it; here for 99 % of the gaps. Source:
// mlcommons/inference_policies, inference_rules.adoc.
SloConfig usual_watch_goals();

// `window` and `log` may be nullptr.
std::vector<WatchedGoal> judge_goals(const SloConfig& slo, const LoadWindow* window,
                                     const LogFigures* log);

bool is_any_broken(const std::vector<WatchedGoal>& goals);

}  // namespace metronome
