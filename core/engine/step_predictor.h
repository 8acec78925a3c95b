// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a step before it is launched, for policies that choose chunks by time.
#pragma once

#include "core/engine/step_plan.h"

namespace metronome {

class StepTimePredictor {
 public:
  virtual ~StepTimePredictor() = default;
  // Device time of all passes of the plan. Deterministic; allocates nothing. Requires a plan with
  // passes.
  virtual TimeNs step_ns(const StepPlan& plan) = 0;
  // Host time from the start of planning until the device can begin the step. The plan may be empty
  // or unfinished; more chunks never shorten it.
  virtual TimeNs host_gap_ns(const StepPlan& plan) const = 0;
};

}  // namespace metronome
