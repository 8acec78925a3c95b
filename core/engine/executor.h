// Runs the steps a scheduler plans: a cost model in simulation, a real engine on a CPU or GPU.
#pragma once

#include <cstddef>

#include "core/engine/step_plan.h"

namespace metronome {

class RequestTable;

class Executor {
 public:
  virtual ~Executor() = default;

  // Starts a step and returns at once; steps execute in the order of their launch. `now` is the
  // host's time when the plan was ready. `requests` gives token counts and block tables.
  virtual void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) = 0;

  // The result of the oldest step in flight; waits for it. Valid until the next collect().
  // Requires a step in flight.
  virtual const StepResult& collect() = 0;

  // The requests of this group of ids (RequestTable::kGroupSize) are over, and no step names them
  // any more: what is kept of them can go.
  virtual void forget_group(std::size_t) {}
};

}  // namespace metronome
