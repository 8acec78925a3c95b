// The record of a run that was watched from outside, by the client of a server: when requests were
// sent and when tokens came, but no steps.
#pragma once

#include <span>
#include <vector>

#include "core/base/types.h"
#include "core/metrics/run_record.h"

namespace metronome {

// Of `request` count arrival (when it was sent), ended, reason and the token counts that it asked
// for; the rest follows from the times of its tokens.
struct WatchedRequest {
  RequestRecord request;
  ClientView view;
  std::vector<TimeNs> token_times;  // of each event with tokens, not decreasing
};

// RunRecord::has_steps() of what comes is false. Requests are in order of their ids, one at least.
RunRecord make_client_record(std::span<const WatchedRequest> requests);

// The times of the tokens of request i.
std::vector<TimeNs> token_times(const RunRecord& record, std::size_t i);

}  // namespace metronome
