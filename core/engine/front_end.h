// The server's front end: HTTP, tokenising and hand-over, between a client's send and the engine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/types.h"

namespace metronome {

struct FrontEnd {
  TimeNs fixed_ns = 0;             // a request; those of many pass at the same time
  double ns_per_prompt_token = 0;  // of a single thread, which works on one prompt after the other

  bool is_off() const { return fixed_ns == 0 && ns_per_prompt_token == 0; }
  TimeNs tokenising_ns(std::int32_t num_prompt_tokens) const {
    return static_cast<TimeNs>(ns_per_prompt_token * num_prompt_tokens + 0.5);
  }
};

// When the engine can first see each of a sequence of requests. Engines tokenise in one thread:
// vLLM's AsyncMicrobatchTokenizer has a pool of one, and the other servers one process.
class HandOver {
 public:
  explicit HandOver(const FrontEnd& front_end) : front_end_(front_end) {}

  // Of the next request.
  TimeNs time_of(TimeNs arrival, std::int32_t num_prompt_tokens) {
    tokenised_ = std::max(tokenised_, arrival) + front_end_.tokenising_ns(num_prompt_tokens);
    return tokenised_ + front_end_.fixed_ns;
  }

 private:
  FrontEnd front_end_;
  TimeNs tokenised_ = 0;  // the prompt of the last request
};

}  // namespace metronome
