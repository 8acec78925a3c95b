// SPDX-License-Identifier: Apache-2.0
// A policy that makes no decisions: it plans the steps of a script.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/engine/engine.h"
#include "core/engine/policy.h"
#include "study/calibrate/calibrate_script.h"

namespace metronome {

// How much of a script was planned so far.
struct ScriptProgress {
  std::size_t num_rounds = 0;  // rounds whose requests have ended
  std::size_t num_steps = 0;
};

// Called before each round except the first, with the time of the rounds so far. Returns whether
// the round should begin. If not, the rest of the script is refused.
using NextRoundFn = std::function<bool(const ScriptProgress& progress, TimeNs elapsed)>;

// For EngineSetup::make_policy. A round begins when the requests of the previous round have
// ended. A request waits for, and takes, the blocks of its whole length when it begins. The
// workload contains the script's requests, which all arrive at the start.
std::function<std::unique_ptr<Policy>(const PolicyContext&)> scripted_policy(
    std::shared_ptr<const StepScript> script, std::shared_ptr<ScriptProgress> progress,
    NextRoundFn begins_round);

}  // namespace metronome
