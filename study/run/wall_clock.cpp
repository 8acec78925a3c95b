// SPDX-License-Identifier: Apache-2.0
#include "study/run/wall_clock.h"

#include <algorithm>
#include <ctime>
#include <thread>
#include <utility>

namespace metronome {

WallClock::WallClock(std::function<void()> on_wait)
    : start_(std::chrono::steady_clock::now()), on_wait_(std::move(on_wait)) {}

TimeNs WallClock::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              start_)
      .count();
}

void WallClock::wait_until(TimeNs t) {
  constexpr TimeNs kSlice = 50 * kNsPerMs;  // the longest delay of Ctrl-C
  for (TimeNs left = t - now(); left > 0; left = t - now()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, kSlice)));
    if (on_wait_) on_wait_();
  }
}

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return {text, length};
}

}  // namespace metronome
