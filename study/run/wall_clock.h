// SPDX-License-Identifier: Apache-2.0
// Real time, for engines that run on real hardware.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/engine/clock.h"

namespace metronome {

// Starts at 0 on construction. A wait calls `on_wait` several times per second; an exception from
// it ends the wait.
class WallClock final : public Clock {
 public:
  explicit WallClock(std::function<void()> on_wait = {});

  TimeNs now() const override;
  void wait_until(TimeNs t) override;

 private:
  std::chrono::steady_clock::time_point start_;
  std::function<void()> on_wait_;
};

// The current local time in the format of vLLM's benchmark: YYYYmmdd-HHMMSS.
std::string date_text();

}  // namespace metronome
