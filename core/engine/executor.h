// SPDX-License-Identifier: Apache-2.0
// Executes the planned steps: a cost model in simulation, a real engine on a CPU or GPU.
#pragma once

#include <cstddef>
#include <span>

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

  // Takes the plan launched last up to times.size() times more. Its run is one position further
  // each time, and it has no other chunks. The host plans each when the oldest step in flight has
  // ended, the first one now, and none at `until` or later. Fills `times` and returns how many
  // steps it took. None of them failed, nor one in flight before. As many as were in flight are
  // still to be collected: those, and then as many of the last ones. If none was, the last one is
  // to be collected if it ends at `horizon` or later. All others end before.
  virtual std::size_t launch_repeats(const StepPlan&, TimeNs /*now*/, TimeNs /*until*/,
                                     TimeNs /*horizon*/, std::span<StepTimes> /*times*/) {
    return 0;
  }

  // When the last of so many repeats would end, if none were planned too late. launch_repeats()
  // with the same plan and time, right after it, gives these times. kNoTime: not known in advance.
  virtual TimeNs end_of_repeats(const StepPlan&, TimeNs /*now*/, std::size_t /*num_steps*/) {
    return kNoTime;
  }

  // When the oldest step in flight ends. kNever: only collect() tells. Requires a step in flight.
  virtual TimeNs ready_at() const { return kNever; }

  // The result of the oldest step in flight, valid until the next collect(). Waits for it if
  // ready_at() is not known. Requires a step in flight.
  virtual const StepResult& collect() = 0;

  // Until then the host is busy with a launch, and plans nothing.
  virtual TimeNs host_free_at() const { return 0; }

  // Reports that all requests of this group of ids (RequestTable::kGroupSize) have ended and no
  // step names them. The executor may free their state.
  virtual void forget_group(std::size_t) {}
};

}  // namespace metronome
