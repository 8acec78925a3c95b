// SPDX-License-Identifier: Apache-2.0
// Derives the steps between the instants of a request log (study/recorded/pinned_run.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "study/recorded/pinned_executor.h"

namespace metronome {

// The steps after one known instant, up to and including a step that produces a first or last
// token.
struct PinnedInterval {
  std::size_t begin = 0;  // index into the run's steps
  std::size_t end = 0;
  TimeNs took = 0;
  double expected = 0;  // by the ratios of the steps' kinds
  double shortest = 0;  // of the expected step times

  std::size_t last() const { return end - 1; }
  double excess() const { return static_cast<double>(took) - expected; }
  // Whether the error is less than one step plus a fraction of all steps, the uncertainty of step
  // times.
  bool is_plausible() const;
};

// The first interval begins with the run's first step.
std::vector<PinnedInterval> intervals_of(const std::vector<PinnedStep>& steps);

// The ratio of actual to predicted time for each kind of step. Decodes are grouped by their number,
// other steps by their tokens. The ratios come from the total times of intervals.
class StepRatios {
 public:
  // Fitted to `known`, intervals of `steps`; implausible intervals do not count. Kinds that do not
  // occur in them use the overall ratio.
  StepRatios(const std::vector<PinnedStep>& steps, std::span<const PinnedInterval> known);

  // The time of `step` per predicted nanosecond.
  double ratio(const PinnedStep& step) const;
  // Sets the expected times of each interval's steps.
  void expect(const std::vector<PinnedStep>& steps, std::vector<PinnedInterval>& intervals) const;

 private:
  void fit(const std::vector<PinnedStep>& steps, const std::vector<PinnedInterval>& intervals,
           bool trims);

  std::vector<double> ratios_;  // by kind
};

// The contradiction in interval `i`; empty if there is none. Tokens of one step come within
// `spread`. The first interval must not be too short. Any other interval must not be too long or
// too short for its steps. Exception: an engine returns tokens late while it launches a prompt
// after their step. One interval is then too long and the next too short by the same amount.
std::string contradiction_in(const std::vector<PinnedStep>& steps,
                             const std::vector<PinnedInterval>& intervals, std::size_t i,
                             TimeNs spread);

}  // namespace metronome
