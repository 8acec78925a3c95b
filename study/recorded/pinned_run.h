// A scenario simulated under the step times of a measured run of which only a request log is left:
// when each request was queued, and when it got its first and its last token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/metrics/run_record.h"
#include "core/scenario/scenario.h"
#include "reports/compare/observed_run.h"
#include "study/recorded/pinned_executor.h"
#include "study/recorded/pinned_steps.h"

namespace metronome {

// A step that cannot have ended when its first and last tokens came: the measured run has other
// steps (study/recorded/pinned_steps.h).
struct Contradiction {
  std::int64_t step = 0;
  std::string what;
};

struct PinnedRun {
  RunRecord record;
  std::vector<PinnedStep> steps;          // of the record
  std::vector<PinnedInterval> intervals;  // each ends with a step that gives first or last tokens
  std::vector<Contradiction> contradictions;

  std::int64_t num_pinned() const { return static_cast<std::int64_t>(intervals.size()); }
};

// Between two known instants only the number of steps is uncertain, by how far predicted times are
// off: which request a step admits depends on where it begins. So the run is simulated again and
// again, with step times as those before the first contradiction have them and some per cent more
// or less, and the simulation is kept that agrees the longest. A contradiction that no such times
// remove stands, and the search goes on behind it.
//
// `log` has all requests of the scenario's workload, in its order; throws ConfigError where not.
// Requests arrive when the log says that they were queued.
PinnedRun run_pinned(const Scenario& scenario, const ObservedRun& log);

// Leaves what was known `until_ns` after the log's first request.
void forget_after(TimeNs until_ns, ObservedRun& log);

// Those from which step times can be learned: up to the first contradiction, but not the first, in
// which an engine may still load and allocate.
std::span<const PinnedInterval> telling_intervals(const PinnedRun& run);

}  // namespace metronome
