// SPDX-License-Identifier: Apache-2.0
// The loop that serves requests on a clock: virtual time of a simulation, real time of an engine
// that computes, or simulated time at the pace of real time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/engine/clock.h"
#include "core/engine/engine.h"

namespace metronome {

struct RunProgress {
  std::size_t num_ended = 0;
  std::size_t num_total = 0;  // RequestSource::num_total()
  TimeNs now = 0;
};
// Called from time to time; returning false ends the run early.
using ProgressFn = std::function<bool(const RunProgress&)>;

// Serves the requests of `source` until all have ended and no more will come. Calls `progress`
// every `steps_per_progress` steps; returns false when it ended the run early. Throws
// InvariantError if requests remain that can never be scheduled.
bool drive(Engine& engine, RequestSource& source, Clock& clock, const ProgressFn& progress = {},
           std::int64_t steps_per_progress = 1024);

}  // namespace metronome
