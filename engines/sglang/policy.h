// SPDX-License-Identifier: Apache-2.0
// The state of policy `sglang` after a plan, for logs of its decisions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/request.h"

namespace metronome {

struct SglangState {
  std::vector<RequestId> running_batch;  // a prefill's requests join it one plan later
  RequestId chunked = kNoRequest;        // in the middle of its prompt
  double new_token_ratio = 0;
  bool batch_is_full = false;
  std::int64_t num_evicted_tokens = 0;  // by this plan
};

class SglangDecisions {
 public:
  virtual ~SglangDecisions() = default;
  virtual SglangState state() const = 0;
};

}  // namespace metronome
