// SPDX-License-Identifier: Apache-2.0
#include "study/recorded/pinned_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/core.h>

#include "core/engine/request.h"
#include "core/engine/step_kind.h"

namespace metronome {
namespace {

// The tolerance of an interval: a fraction of its shortest step, so that one step too many or too
// few is detected, plus a fraction of all its steps.
constexpr double kShortestShare = 0.45;
constexpr double kWholeShare = 0.03;

std::size_t kind_of(const PinnedStep& step) {
  constexpr std::int64_t kDecodeWidth = 8;
  constexpr std::int64_t kPromptWidth = 128;
  constexpr std::int64_t kMostDecodes = 4096;
  const StepTokens tokens = tokens_of(step);
  if (tokens.has_prompt()) {
    return even_range(kMostDecodes, kDecodeWidth) + 1 + even_range(tokens.all(), kPromptWidth);
  }
  return even_range(std::min(tokens.decode, kMostDecodes), kDecodeWidth);
}

std::string span_text(double ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", ns / static_cast<double>(kNsPerMs));
  return text;
}

constexpr std::size_t kMaxLate = 4;  // intervals in a row

// Detects late tokens. The tokens that end interval `i` were late if three conditions hold: it is
// too long, the next interval begins with the launch of a prompt, and both together are plausible.
// This may continue over the next intervals. Returns the last of them, or `i` if the tokens were
// not late.
std::size_t late_until(const std::vector<PinnedStep>& steps,
                       const std::vector<PinnedInterval>& intervals, std::size_t i) {
  PinnedInterval all = intervals[i];
  if (all.excess() <= 0) return i;
  for (std::size_t k = i + 1; k < std::min(i + kMaxLate, intervals.size()); ++k) {
    const PinnedInterval& next = intervals[k];
    if (steps[next.begin].num_prefill_tokens == 0) break;
    all.took += next.took;
    all.expected += next.expected;
    all.shortest = std::min(all.shortest, next.shortest);
    if (all.is_plausible()) return k;
  }
  return i;
}

bool is_beside_late_tokens(const std::vector<PinnedStep>& steps,
                           const std::vector<PinnedInterval>& intervals, std::size_t i) {
  for (std::size_t back = 0; back <= std::min(i, kMaxLate - 1); ++back) {
    const std::size_t until = late_until(steps, intervals, i - back);
    if (until > i - back && until >= i) return true;
  }
  return false;
}

}  // namespace

bool PinnedInterval::is_plausible() const {
  return std::abs(excess()) <= kShortestShare * shortest + kWholeShare * expected;
}

std::vector<PinnedInterval> intervals_of(const std::vector<PinnedStep>& steps) {
  std::vector<PinnedInterval> intervals;
  TimeNs known = 0;  // when the previous step ended or the engine woke
  std::size_t begin = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const PinnedStep& step = steps[i];
    if (i == 0 || step.is_after_idle) {
      known = step.started_at;
      begin = i;
    }
    if (!step.is_pinned()) continue;
    intervals.push_back({begin, i + 1, step.earliest - known, 0, 0});
    known = step.earliest;
    begin = i + 1;
  }
  return intervals;
}

StepRatios::StepRatios(const std::vector<PinnedStep>& steps,
                       std::span<const PinnedInterval> known) {
  // The first rounds use all intervals, the others only those that the current ratios make
  // plausible.
  constexpr int kRounds = 25;
  constexpr int kRoundsOfAll = 5;
  for (const PinnedStep& step : steps) {
    ratios_.resize(std::max(ratios_.size(), kind_of(step) + 1), 1.0);
  }
  std::vector<PinnedInterval> intervals(known.begin(), known.end());
  for (int round = 0; round < kRounds; ++round) {
    expect(steps, intervals);
    fit(steps, intervals, round >= kRoundsOfAll);
  }
}

double StepRatios::ratio(const PinnedStep& step) const {
  const std::size_t kind = kind_of(step);
  return kind < ratios_.size() ? ratios_[kind] : 1.0;
}

void StepRatios::expect(const std::vector<PinnedStep>& steps,
                        std::vector<PinnedInterval>& intervals) const {
  for (PinnedInterval& interval : intervals) {
    interval.expected = 0;
    for (std::size_t i = interval.begin; i < interval.end; ++i) {
      const double ns = ratio(steps[i]) * static_cast<double>(steps[i].cost);
      interval.expected += ns;
      interval.shortest = i == interval.begin ? ns : std::min(interval.shortest, ns);
    }
  }
}

// Distributes an interval's time over its steps in proportion to their expected times.
void StepRatios::fit(const std::vector<PinnedStep>& steps,
                     const std::vector<PinnedInterval>& intervals, bool trims) {
  std::vector<double> took(ratios_.size());
  std::vector<double> cost(ratios_.size());
  double all_took = 0;
  double all_cost = 0;
  for (const PinnedInterval& interval : intervals) {
    if (trims && !interval.is_plausible()) continue;
    const double share = static_cast<double>(interval.took) / interval.expected;
    for (std::size_t i = interval.begin; i < interval.end; ++i) {
      const auto ns = static_cast<double>(steps[i].cost);
      took[kind_of(steps[i])] += share * ratio(steps[i]) * ns;
      cost[kind_of(steps[i])] += ns;
      all_cost += ns;
    }
    all_took += static_cast<double>(interval.took);
  }
  if (all_cost == 0) return;
  constexpr double kWeight = 0.001;  // weight of the overall ratio in each kind
  const double mean = all_took / all_cost;
  for (std::size_t k = 0; k < ratios_.size(); ++k) {
    ratios_[k] = (took[k] + mean * kWeight * all_cost) / (cost[k] + kWeight * all_cost);
  }
}

std::string contradiction_in(const std::vector<PinnedStep>& steps,
                             const std::vector<PinnedInterval>& intervals, std::size_t i,
                             TimeNs spread) {
  const PinnedInterval& interval = intervals[i];
  const PinnedStep& step = steps[interval.last()];
  if (step.latest - step.earliest > spread) {
    return "has first or last tokens that came " +
           span_text(static_cast<double>(step.latest - step.earliest)) + " apart";
  }
  // An engine's first steps load kernels and allocate, so they may take any time.
  if (interval.is_plausible() || (i == 0 && interval.excess() > 0)) return "";
  if (is_beside_late_tokens(steps, intervals, i)) return "";
  const std::size_t num_steps = interval.end - interval.begin;
  const auto took = static_cast<double>(interval.took);
  return fmt::format("has a token of request {} {}{} the previous known instant; {}{}",
                     index(step.request), span_text(std::abs(took)),
                     took < 0 ? " before" : " after",
                     num_steps == 1 ? "it takes " : fmt::format("{} steps take ", num_steps),
                     span_text(interval.expected));
}

}  // namespace metronome
