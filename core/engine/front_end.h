// SPDX-License-Identifier: Apache-2.0
// The server's front end: HTTP, tokenising and hand-over, between a client's send and the engine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/types.h"

namespace metronome {

struct FrontEnd {
  TimeNs fixed_ns = 0;  // a request
  double ns_per_prompt_token = 0;

  bool is_off() const { return fixed_ns == 0 && ns_per_prompt_token == 0; }
  TimeNs delay_ns(std::int32_t num_prompt_tokens) const {
    return fixed_ns + static_cast<TimeNs>(ns_per_prompt_token * num_prompt_tokens + 0.5);
  }
};

// When the engine can first see each of a sequence of requests. A front end works on many requests
// at once, but hands them over in order of arrival.
class HandOver {
 public:
  explicit HandOver(const FrontEnd& front_end) : front_end_(front_end) {}

  // Of the next request.
  TimeNs time_of(TimeNs arrival, std::int32_t num_prompt_tokens) {
    last_ = std::max(last_, arrival + front_end_.delay_ns(num_prompt_tokens));
    return last_;
  }

 private:
  FrontEnd front_end_;
  TimeNs last_ = 0;
};

}  // namespace metronome
