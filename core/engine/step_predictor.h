// How long a step would take, asked before it is made: what a policy needs that chooses its chunks
// by their time.
#pragma once

#include "core/engine/step_plan.h"

namespace metronome {

class StepTimePredictor {
 public:
  virtual ~StepTimePredictor() = default;
  // Device time of all passes of the plan. Deterministic; allocates nothing. Requires a plan with
  // passes.
  virtual TimeNs step_ns(const StepPlan& plan) = 0;
  // Host time from when the step of the plan is planned until the device can begin it. The plan may
  // be empty, or unfinished: with more chunks it is no shorter.
  virtual TimeNs host_gap_ns(const StepPlan& plan) const = 0;
};

}  // namespace metronome
