// SPDX-License-Identifier: Apache-2.0
// The sessions of a trace.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/types.h"
#include "core/workload/workload.h"

namespace metronome {

// The place of a request in its session, as the trace gives it.
struct TraceTurn {
  std::uint32_t session = 0;  // a number from 0; that of the first of those that go on from others
  std::int64_t turn = 0;      // equal ones are in the order of the rows
  TimeNs delay = 0;           // from the end of the request before
  int line = 0;               // of the row, for messages
  bool has_arrival = false;
};

// Whether a request waits for another: it has no arrival of its own.
bool waits_for_others(const std::vector<TraceTurn>& turns);

// Makes sessions of requests, one turn for each: by the arrivals of their first requests, which all
// or none of them have. The prompts of later turns go on from the session so far, or are whole
// prompts; `counts_new_tokens` says that they count what they add. Requires segments for all
// requests or none.
void make_sessions(const std::vector<TraceTurn>& turns, bool counts_new_tokens, Workload& workload);

// Gives timed requests the prompts of their sessions: each goes on from the prompt and the output
// of the one before, where it is long enough. Requires requests by arrival, without prompts of
// their own.
void share_prompts_of_sessions(const std::vector<TraceTurn>& turns, bool counts_new_tokens,
                               Workload& workload);

}  // namespace metronome
