// SPDX-License-Identifier: Apache-2.0
// The settings that `metronome tune` chooses from.
#pragma once

#include <string>
#include <vector>

#include "study/sweep/sweep_plan.h"

namespace metronome {

struct ScenarioFile;

// The candidate settings. Settings that resolve to the same scenario are one candidate.
struct TuneCandidates {
  SweepPlan plan;
  std::vector<std::string> names;  // of plan.runs: "chunked-512 scheduler.order=fcfs"
};

// Settings of the request's variants and the values of `over`, as in `metronome sweep`, that start.
// Throws UsageError for keys of requests and limits, and where none is left.
TuneCandidates find_candidates(const SweepRequest& request, const std::vector<std::string>& over,
                               const ScenarioFile& file, int num_jobs);
// Throws UsageError unless requests and limits are the same for all.
void check_alike(const SweepPlan& plan);

// Moves candidates that do not start, such as one whose steps leave no memory for a KV block, to
// plan.invalid. Throws the first one's ConfigError if none starts.
void leave_out_refused(TuneCandidates& candidates);

}  // namespace metronome
