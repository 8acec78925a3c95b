// Requests that come while the engine runs, from clients that may leave before they are served.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/prompt.h"
#include "core/engine/request_input.h"

namespace metronome {

class RequestFeed : public RequestInput, public PromptSource {
 public:
  // The prompt is the one that prompt_ids() gives.
  void prompt(RequestId request, std::vector<TokenId>& out) const final {
    const std::span<const TokenId> ids = prompt_ids(request);
    out.assign(ids.begin(), ids.end());
  }

  // Called before each plan, at the engine's time `now`: submits the requests that came by then,
  // and ends those that nobody waits for any more.
  virtual void exchange(Engine& engine, TimeNs now) = 0;

  // Called when nothing can be computed. Waits for a request, for something else that exchange()
  // has to do, or until the engine's time is `wake` (kNever: for as long as it takes). Returns the
  // time at which to go on; nullopt when all requests have ended and no more will come.
  virtual std::optional<TimeNs> wait(TimeNs wake) = 0;

  // What a backend that computes no tokens says in their place: output token `i` of the request,
  // counted from 0.
  struct Spoken {
    TokenId token{};
    bool ends_request = false;  // as an end-of-text token would
  };
  virtual Spoken say(RequestId request, std::int32_t i) const = 0;
};

}  // namespace metronome
