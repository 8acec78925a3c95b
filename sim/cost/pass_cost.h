// SPDX-License-Identifier: Apache-2.0
// The cost of forward passes in unrounded nanoseconds, and the cost of a step made of them.
#pragma once

#include <algorithm>

#include "sim/cost/cost_model.h"

namespace metronome {

constexpr double kNsPerMicro = 1e3;
constexpr double kMicrosPerSec = 1e6;

// A step of more than eleven days is a mistake in a file. The limit keeps it within the integers.
constexpr double kMaxStepNs = 1e15;
inline TimeNs round_ns(double ns) { return static_cast<TimeNs>(std::min(ns, kMaxStepNs) + 0.5); }

struct PassCost {
  double linear_ns = 0;
  double attention_ns = 0;
  double comm_ns = 0;
  double overhead_ns = 0;
  bool is_extrapolated = false;  // StepCost::is_extrapolated

  void operator+=(const PassCost& pass) {
    linear_ns += pass.linear_ns;
    attention_ns += pass.attention_ns;
    comm_ns += pass.comm_ns;
    overhead_ns += pass.overhead_ns;
    is_extrapolated = is_extrapolated || pass.is_extrapolated;
  }
};

// `all` is the sum of a step's passes; `decodes` is the same sum without their prefill chunks.
// Empty passes cost nothing.
inline StepCost step_cost_of(const PassCost& all, const PassCost& decodes) {
  const auto total_ns = [](const PassCost& pass) {
    return round_ns(pass.linear_ns) + round_ns(pass.attention_ns) + round_ns(pass.comm_ns) +
           round_ns(pass.overhead_ns);
  };
  StepCost cost;
  cost.linear_ns = round_ns(all.linear_ns);
  cost.attention_ns = round_ns(all.attention_ns);
  cost.comm_ns = round_ns(all.comm_ns);
  cost.overhead_ns = round_ns(all.overhead_ns);
  cost.total_ns = total_ns(all);
  // Measurements scatter: decodes may appear faster beside a short chunk than alone.
  cost.decode_only_ns = std::min(total_ns(decodes), cost.total_ns);
  cost.decode_only_attention_ns = std::min(round_ns(decodes.attention_ns), cost.decode_only_ns);
  cost.decode_only_comm_ns =
      std::min(round_ns(decodes.comm_ns), cost.decode_only_ns - cost.decode_only_attention_ns);
  cost.is_extrapolated = all.is_extrapolated;
  return cost;
}

// Of a step without prefill chunks.
inline StepCost step_cost_of(const PassCost& decodes) { return step_cost_of(decodes, decodes); }

}  // namespace metronome
