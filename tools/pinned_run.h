// A scenario simulated under the step times of a measured run of which only a request log is left:
// when each request was queued, and when it got its first and its last token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/run_record.h"
#include "core/scenario.h"
#include "reports/observed_run.h"

namespace metronome {

// A step that cannot have ended when its first and last tokens came: the measured run has other
// steps.
struct Contradiction {
  std::int64_t step = 0;
  std::string what;
};

struct PinnedRun {
  RunRecord record;
  std::int64_t num_pinned = 0;  // steps with a first or last token
  // Either tokens of one step have different instants, or the steps since the last pinned one would
  // have taken a time that is far from what steps take there.
  std::vector<Contradiction> contradictions;
};

// Simulates again and again, each time with the steps between two pinned ones scaled by what they
// took together the time before, until nothing is contradictory or no more is won. That the cost
// model is some per cent off does not matter: how many steps lie between two tokens is the
// scheduler's doing.
//
// `log` has all requests of the scenario's workload, in its order; throws ConfigError where not.
// Requests arrive when the log says that they were queued.
PinnedRun run_pinned(const Scenario& scenario, const ObservedRun& log);

}  // namespace metronome
