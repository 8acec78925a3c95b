// How much of a workload an engine can do at most.
#pragma once

#include "core/run/run.h"

namespace metronome {

// Requests a second, when requests never run out: how much longer the simulation of twice as many
// requests takes, which all arrive at the start. Start and end of a simulation cancel out. Sessions
// continue without pauses. Uses up to 1000 requests.
// Throws Interrupted.
double most_requests_per_s(PreparedVariant& variant);

}  // namespace metronome
