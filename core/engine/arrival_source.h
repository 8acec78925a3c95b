// SPDX-License-Identifier: Apache-2.0
// The interface that gives the engine requests when they are due.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/engine/request.h"

namespace metronome {

class ArrivalSource {
 public:
  virtual ~ArrivalSource() = default;

  // The next request due at time `now`, before step `step`. Its arrival is set to a time.
  virtual std::optional<RequestSpec> pop_due(TimeNs now, std::int64_t step) = 0;

  // The time of the next arrival, as known now; kNever if no arrival is due by time alone.
  virtual TimeNs next_time() const = 0;
  // The step of the next arrival. nullopt if arrivals are not by step or have ended.
  virtual std::optional<std::int64_t> next_step() const = 0;

  // Reports that a request has ended or was rejected.
  virtual void on_ended(TimeNs now) = 0;

  virtual std::size_t num_total() const = 0;
};

}  // namespace metronome
