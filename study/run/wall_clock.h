// Real time, for engines that compute.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/engine/clock.h"

namespace metronome {

// Starts at 0 when it is made. A wait calls `on_wait` several times a second; what that throws ends
// the wait.
class WallClock final : public Clock {
 public:
  explicit WallClock(std::function<void()> on_wait = {});

  TimeNs now() const override;
  void wait_until(TimeNs t) override;

 private:
  std::chrono::steady_clock::time_point start_;
  std::function<void()> on_wait_;
};

// The time of day as vLLM's benchmark writes it: YYYYmmdd-HHMMSS, local.
std::string date_text();

}  // namespace metronome
