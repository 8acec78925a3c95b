// SPDX-License-Identifier: Apache-2.0
// When the iterations of a log began and ended. Stamps have whole seconds; the times of the
// iterations say how far apart consecutive ends are at least.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "engines/log/engine_log.h"

namespace metronome {

// Times of a log as one clock: from midnight before its first stamp. Logs that run past midnight go
// on with the next day.
class LogClock {
 public:
  // The time of the stamp; kNoTime: it is none. Stamps come in the log's order.
  TimeNs read(std::string_view stamp);

 private:
  TimeNs day_ = 0;
  TimeNs last_ = kNoTime;
};

// The second that a stamp stands for: [first, first + 1 s).
constexpr TimeNs kStampNs = (1000 * kNsPerMs);

// The end of each iteration of one engine: within the second of its stamp, and at least its own
// time behind the end before it. Where several instants fit, the middle.
std::vector<TimeNs> iteration_ends(std::span<const LogObservation> iterations,
                                   std::span<const TimeNs> stamps);

}  // namespace metronome
