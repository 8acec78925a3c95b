// SPDX-License-Identifier: Apache-2.0
#include "study/rebuilt/log_clock.h"

#include <algorithm>
#include <cmath>

#include "engines/log/log_text.h"

namespace metronome {

TimeNs LogClock::read(std::string_view stamp) {
  constexpr TimeNs kDay = 86'400 * kStampNs;
  const std::optional<double> seconds = seconds_of(stamp);
  if (!seconds) return kNoTime;
  TimeNs now = day_ + std::llround(*seconds * static_cast<double>(kStampNs));
  // Lines of several processes may be a little out of order.
  if (last_ != kNoTime && now < last_ - kDay / 2) {
    day_ += kDay;
    now += kDay;
  }
  last_ = now;
  return now;
}

std::vector<TimeNs> iteration_ends(std::span<const LogObservation> iterations,
                                   std::span<const TimeNs> stamps) {
  const std::size_t n = iterations.size();
  std::vector<TimeNs> earliest(n);
  for (std::size_t i = 0; i < n; ++i) {
    const TimeNs behind = i == 0 ? 0 : earliest[i - 1] + iterations[i].elapsed_ns;
    earliest[i] = stamps[i] == kNoTime ? behind : std::max(behind, stamps[i]);
  }
  std::vector<TimeNs> ends(n);
  TimeNs latest = kNever;
  for (std::size_t i = n; i-- > 0;) {
    if (stamps[i] != kNoTime) latest = std::min(latest, stamps[i] + kStampNs);
    if (latest == kNever) latest = earliest[i];
    ends[i] = latest <= earliest[i] ? earliest[i] : earliest[i] + (latest - earliest[i]) / 2;
    latest = std::max(latest, earliest[i]) - iterations[i].elapsed_ns;
  }
  // Contradictions between stamps and times leave ends too early.
  for (std::size_t i = 1; i < n; ++i) {
    ends[i] = std::max(ends[i], ends[i - 1] + iterations[i].elapsed_ns);
  }
  return ends;
}

}  // namespace metronome
