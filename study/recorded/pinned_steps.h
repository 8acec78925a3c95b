// What the instants of a request log say of the steps between them (study/recorded/pinned_run.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "study/recorded/pinned_executor.h"

namespace metronome {

// The steps behind one known instant, up to and including one that gives a first or a last token.
struct PinnedInterval {
  std::size_t begin = 0;  // of the run's steps
  std::size_t end = 0;
  TimeNs took = 0;
  double expected = 0;  // by the ratios of their kinds
  double shortest = 0;  // of these

  std::size_t last() const { return end - 1; }
  double excess() const { return static_cast<double>(took) - expected; }
  // Less than one step more or less, and a part of them all for what is not known of step times.
  bool is_plausible() const;
};

// The first begins with the run's first step.
std::vector<PinnedInterval> intervals_of(const std::vector<PinnedStep>& steps);

// By how much longer than predicted the steps of each kind take, decodes by their number and others
// by their tokens, from what they took together in the intervals they lie in.
class StepRatios {
 public:
  // Fitted to `known`, intervals of `steps`; those that are implausible do not count. Kinds that
  // are not in them take what all do.
  StepRatios(const std::vector<PinnedStep>& steps, std::span<const PinnedInterval> known);

  // What `step` takes for each nanosecond that is predicted for it.
  double ratio(const PinnedStep& step) const;
  // Sets what the steps of each interval are expected to take.
  void expect(const std::vector<PinnedStep>& steps, std::vector<PinnedInterval>& intervals) const;

 private:
  void fit(const std::vector<PinnedStep>& steps, const std::vector<PinnedInterval>& intervals,
           bool trims);

  std::vector<double> ratios_;  // by kind
};

// What is odd about interval `i`; empty where nothing is. Tokens of one step come within `spread`.
// Neither the first interval may be too short, nor any other be too long or too short for its
// steps. But an engine hands out tokens late while it launches a prompt behind their step: what an
// interval is too long for, the next is then too short for.
std::string contradiction_in(const std::vector<PinnedStep>& steps,
                             const std::vector<PinnedInterval>& intervals, std::size_t i,
                             TimeNs spread);

}  // namespace metronome
