// SPDX-License-Identifier: Apache-2.0
// Where an engine's requests come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/base/types.h"

namespace metronome {

class Engine;

class RequestSource {
 public:
  virtual ~RequestSource() = default;

  // Called before each plan, at the engine's time `now`. If this plan receives requests, submits
  // those that arrived by then. May abort requests.
  virtual void exchange(Engine& engine, TimeNs now, bool receives) = 0;

  // When the next request comes to an idle engine; kNever: not known, or none.
  virtual TimeNs next_time(const Engine&) const { return kNever; }

  // Called when the engine is idle. Waits for a request, for other work of exchange(), or until
  // engine.wake_time() (kNever: no limit). Returns the time at which to continue; nullopt when all
  // requests have ended and no more will come.
  virtual std::optional<TimeNs> wait(const Engine& engine) = 0;

  // As many requests as it will have submitted; 0: not known.
  virtual std::size_t num_total() const { return 0; }

  // As long as no request ends, none comes before this time, nor in so many plans.
  struct Quiet {
    TimeNs until = 0;
    std::int64_t num_plans = 0;
  };
  // nullopt: one may come at any time.
  virtual std::optional<Quiet> quiet(const Engine&) const { return std::nullopt; }
};

}  // namespace metronome
