// SPDX-License-Identifier: Apache-2.0
// Simulates a scenario under the step times of a measured run of which only a request log exists:
// when each request was queued, and when it received its first and its last token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/metrics/run_record.h"
#include "reports/compare/observed_run.h"
#include "study/recorded/pinned_executor.h"
#include "study/recorded/pinned_steps.h"

namespace metronome {

struct Scenario;

// A step that cannot have ended when its first and last tokens came: the measured run has different
// steps (study/recorded/pinned_steps.h).
struct Contradiction {
  std::int64_t step = 0;
  std::string what;
};

struct PinnedRun {
  RunRecord record;
  std::vector<PinnedStep> steps;          // of the record
  std::vector<PinnedInterval> intervals;  // each ends with a step with first or last tokens
  std::vector<Contradiction> contradictions;

  std::int64_t num_pinned() const { return static_cast<std::int64_t>(intervals.size()); }
};

// Between two known instants the number of steps is uncertain, by the error of the predicted times.
// The start time of a step decides which request it admits. So the run is simulated repeatedly,
// with the step times learned before the first contradiction, scaled by a few per cent. The
// simulation that agrees longest is kept. If no such times remove a contradiction, it stands and
// the search continues after it.
//
// `log` has all requests of the scenario's workload, in order; throws ConfigError otherwise.
// Requests arrive when the log says that they were queued.
PinnedRun run_pinned(const Scenario& scenario, const ObservedRun& log);

// Removes everything later than `until_ns` after the log's first request.
void forget_after(TimeNs until_ns, ObservedRun& log);

// The intervals from which step times can be learned: up to the first contradiction, without the
// first interval, in which an engine may still load and allocate.
std::span<const PinnedInterval> telling_intervals(const PinnedRun& run);

}  // namespace metronome
