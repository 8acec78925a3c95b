// SPDX-License-Identifier: Apache-2.0
// The sides of a goal that a run should keep: limits on gaps, on first tokens, on rates and on
// cost. They come from a scenario's `slo` section and from options of commands. `diagnose`, `sweep`
// and `tune` read and name them here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/metrics/figures.h"
#include "core/metrics/slo_config.h"
#include "core/metrics/summary.h"

namespace metronome {

enum class GoalSide : std::uint8_t { Gap, Ttft, Tpot, E2el, Rate, Throughput, Cost };

// One side: a figure of the run, or of the requests of a class, and its limit.
struct Goal {
  GoalSide side = GoalSide::Gap;
  std::string figure;  // of the table of figures
  double limit = 0;
  bool is_least = false;   // the figure is at least the limit; else at most
  std::string class_name;  // of requests; empty: all
  std::string key;         // where it is from: "slo.ttft_ms"

  // NaN keeps every limit: a run without such a figure has nothing that could break it.
  bool is_kept_by(double value) const;
  // The figure over the limit, or the limit over the figure: at most 1 where it is kept.
  double excess(double value) const;
};

// The sides of a run's goal: those of the `slo` section, where a limit of requests is one on the
// p99 of all, and itl_ms one on the longest gap, or with itl_share on that percentile. Where
// classes have limits of their own, each class has its side.
std::vector<Goal> goals_of(const SloConfig& slo);
// Sides that make no single request good or bad.
std::vector<Goal> run_goals_of(const SloConfig& slo);
// The section with options in the place of keys that both have.
SloConfig with_options(SloConfig slo, const SloConfig& options);

// The figure of a run that a goal limits. NaN: the run has none.
double goal_figure(const Goal& goal, const Summary& summary, const RunFacts& facts);
// A goal figure of a run whose figures alone are known; NaN for classes.
double goal_figure(const Goal& goal, const FigureValues& figures);

// "every gap within 50 ms", "99 % of the gaps within 50 ms", "the p99 TTFT within 3,000 ms",
// "answers during prefill at 20 tok/s or more". Without an end.
std::string goal_words(const Goal& goal);
// "every gap within 50 ms and the p99 TTFT within 3,000 ms".
std::string goal_words(std::span<const Goal> goals);
// The side in two words: "longest gap", "p99 TTFT"; and with its class.
std::string short_goal_words(const Goal& goal);

// The shares of gaps for which runs have a percentile: 0.5, 0.9, 0.95, 0.99, and 1.
bool is_known_share(double share);

}  // namespace metronome
