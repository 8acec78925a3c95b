// A scheduler that decides nothing: it hands out the steps of a script.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/engine/engine.h"
#include "core/engine/scheduler.h"
#include "study/calibrate/calibrate_script.h"

namespace metronome {

// What has been handed out of a script so far.
struct ScriptProgress {
  std::size_t num_rounds = 0;  // whose requests have ended
  std::size_t num_steps = 0;
};

// Asked before each round but the first, with the time that the rounds so far took, whether it
// should begin. Where it should not, what is left of the script is refused.
using NextRoundFn = std::function<bool(const ScriptProgress& progress, TimeNs elapsed)>;

// For EngineSetup::make_scheduler. A round begins when the requests of the one before have ended; a
// request takes the blocks of its whole length when it begins, and waits for them. The workload's
// requests are those of the script, all there from the start.
std::function<std::unique_ptr<Scheduler>(const SchedulerContext&)> scripted_scheduler(
    std::shared_ptr<const StepScript> script, std::shared_ptr<ScriptProgress> progress,
    NextRoundFn begins_round);

}  // namespace metronome
