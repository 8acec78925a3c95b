// SPDX-License-Identifier: Apache-2.0
// Describes a workload before it runs: lengths, arrivals, and the tokens that its prompts share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/workload/workload.h"

namespace metronome {

// Figures of whole numbers; percentiles by the nearest rank.
struct CountFigures {
  std::int64_t total = 0;
  double mean = 0;
  std::int64_t p50 = 0, p90 = 0, p99 = 0, max = 0;
};
CountFigures figures_of(std::vector<std::int64_t> counts);  // all 0 if empty

struct WorkloadProfile {
  std::int64_t num_requests = 0;
  CountFigures prompt_tokens;
  CountFigures output_tokens;
  // Of sessions: requests each, and tokens of a prompt that its session has not had before.
  CountFigures session_requests;
  CountFigures new_tokens;
  // Prompt tokens that an earlier prompt of the workload begins with, in its order: the most that a
  // prefix cache without bounds can find. With sessions also the answers in a prompt.
  std::int64_t shared_tokens = 0;
  TimeNs last_arrival = 0;  // Timed: of the last request, with sessions of the last session
  // Requests a second: Timed, where the last arrival is not the first. Of sessions: those of all
  // their turns, over the time in which sessions start.
  std::optional<double> requests_per_s;
};
WorkloadProfile profile_of(const Workload& workload);

// "Model, Log Type and 3 more": columns and fields of the trace that are not used; empty: none.
std::string unused_fields_text(const Workload& workload);

}  // namespace metronome
