// SPDX-License-Identifier: Apache-2.0
// Requests that arrive while the engine runs, from clients that may disconnect early.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/prompt.h"
#include "core/engine/request_input.h"
#include "core/engine/request_source.h"

namespace metronome {

class RequestFeed : public RequestSource, public RequestInput, public PromptSource {
 public:
  // Copies the ids of prompt_ids().
  void prompt(RequestId request, std::vector<TokenId>& out) const final {
    const std::span<const TokenId> ids = prompt_ids(request);
    out.assign(ids.begin(), ids.end());
  }

  // Called when nothing can be computed. Waits for a request, for other work of exchange(), or
  // until the engine's time is `wake` (kNever: no limit). Returns the time at which to continue.
  // Returns nullopt when all requests have ended and no more will come.
  virtual std::optional<TimeNs> wait_for_input(TimeNs wake) = 0;
  std::optional<TimeNs> wait(const Engine& engine) final {
    return wait_for_input(engine.wake_time());
  }

  // A stand-in for output tokens on a backend that computes none: output token `i` of the request,
  // counted from 0.
  struct OutputToken {
    TokenId token{};
    bool ends_request = false;  // like an end-of-text token
  };
  virtual OutputToken output_token(RequestId request, std::int32_t i) const = 0;
};

}  // namespace metronome
