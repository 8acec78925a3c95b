// SPDX-License-Identifier: Apache-2.0
// The requests that ended, where a log says only how many did.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/rng.h"
#include "study/rebuilt/rebuilt_requests.h"

namespace metronome {

struct RequestEnds {
  // For each iteration; false while requests that lost their KV blocks count as ended.
  std::vector<bool> is_settled;
};

// Sets RebuiltRequest::last and is_output_exact. `num_ended` has the number of requests that ended
// in each iteration; negative where requests go on that had been missing. A request that reaches
// its limit in an iteration in which requests ended is one of them; other ends are drawn among the
// requests that run, so that none is beyond its limit.
RequestEnds find_request_ends(std::vector<std::int64_t> num_ended,
                              std::vector<RebuiltRequest>& requests, Rng& rng);

}  // namespace metronome
