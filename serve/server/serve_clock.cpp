// SPDX-License-Identifier: Apache-2.0
#include "serve/server/serve_clock.h"

#include <algorithm>
#include <thread>

namespace metronome {
namespace {

// A million times as fast as real time, the nanoseconds of an int64 last 2.6 hours. Half of them
// leave room for the sums of an engine.
constexpr auto kMaxStampNs = static_cast<double>(TimeNs{1} << 62);

}  // namespace

bool ServeClock::start() {
  bool is_first = false;
  std::call_once(once_, [this, &is_first] {
    start_ = Steady::now();
    is_started_ = true;
    is_first = true;
  });
  return is_first;
}

TimeNs ServeClock::stamp() const {
  if (!is_started_) return 0;
  const std::chrono::duration<double, std::nano> passed = Steady::now() - start_;
  return static_cast<TimeNs>(std::min(passed.count() * speed_, kMaxStampNs));
}

std::chrono::steady_clock::time_point ServeClock::when(TimeNs t) const {
  if (!is_started_) return Steady::now();
  const std::chrono::duration<double, std::nano> passed(static_cast<double>(t) / speed_);
  return start_ + std::chrono::duration_cast<Steady::duration>(passed);
}

void ServeClock::wait_until(TimeNs t) {
  constexpr std::chrono::milliseconds kSlice(50);  // the longest delay of stop()
  if (is_simulated_ && t <= now_) return;
  const Steady::time_point end = when(t);
  Steady::time_point at = Steady::now();
  if (is_simulated_ && at > end) {
    const TimeNs lag = stamp() - t;
    if (lag > max_lag_) max_lag_ = lag;
  }
  for (; at < end && !(is_simulated_ && is_hurried_); at = Steady::now()) {
    std::this_thread::sleep_until(std::min(end, at + kSlice));
    if (is_stopped_) throw Stopped();
  }
  now_ = t;
}

}  // namespace metronome
