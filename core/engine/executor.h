// Executes the planned steps: a cost model in simulation, a real engine on a CPU or GPU.
#pragma once

#include <cstddef>

#include "core/engine/step_plan.h"

namespace metronome {

class RequestTable;

class Executor {
 public:
  virtual ~Executor() = default;

  // Whether launch() takes plans with a run of decodes, and results have lengths only. Otherwise
  // plans list every chunk.
  virtual bool takes_runs() const { return false; }

  // Starts a step and returns at once. Steps execute in launch order. `now` is the host's time when
  // the plan was ready. `requests` gives token counts and block tables.
  virtual void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) = 0;

  // Waits for the oldest step in flight and returns its result. The result is valid until the next
  // collect(). Requires a step in flight.
  virtual const StepResult& collect() = 0;

  // Reports that all requests of this group of ids (RequestTable::kGroupSize) have ended and no
  // step names them. The executor may free their state.
  virtual void forget_group(std::size_t) {}
};

}  // namespace metronome
