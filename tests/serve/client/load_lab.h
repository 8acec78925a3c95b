// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of loads on servers.
#pragma once

#include <cstdint>
#include <string>

#include "core/workload/workload.h"
#include "serve/client/load_requests.h"

namespace metronome::testing {

// Requests of `num_tokens` tokens, all due at once unless `gap_ns` apart.
inline Workload small_workload(std::size_t num_requests, std::int32_t num_tokens,
                               TimeNs gap_ns = 0) {
  Workload workload;
  for (std::size_t i = 0; i < num_requests; ++i) {
    RequestSpec spec;
    spec.arrival = static_cast<TimeNs>(i) * gap_ns;
    spec.num_prompt_tokens = 7;
    spec.max_output_tokens = num_tokens;
    workload.requests.push_back(spec);
  }
  return workload;
}

inline LoadRequestOptions request_options(const std::string& url, LoadEndpoint endpoint) {
  return {parse_server_url(url), endpoint, "m", 5, 1024, {}};
}

}  // namespace metronome::testing
