// SPDX-License-Identifier: Apache-2.0
// The record of a run as seen by a client of a server. It has the times of requests and tokens, but
// no steps.
#pragma once

#include <span>
#include <vector>

#include "core/base/types.h"
#include "core/metrics/run_record.h"

namespace metronome {

// Input for one request. Set arrival (the send time), ended, reason and the requested token counts
// in `request`. make_client_record() derives the other fields from token_times.
struct WatchedRequest {
  RequestRecord request;
  ClientView view;
  std::vector<TimeNs> token_times;  // one per event with tokens, not decreasing
};

// RunRecord::has_steps() of the result is false. Requests are ordered by id; at least one is
// required.
RunRecord make_client_record(std::span<const WatchedRequest> requests);

// The times of the tokens of request i.
std::vector<TimeNs> token_times(const RunRecord& record, std::size_t i);

}  // namespace metronome
