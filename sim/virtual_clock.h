// Simulated time: waiting costs nothing.
#pragma once

#include "core/engine/clock.h"

namespace metronome {

class VirtualClock final : public Clock {
 public:
  TimeNs now() const override { return now_; }
  // Jumps. Waiting for the past leaves the clock where it is.
  void wait_until(TimeNs t) override {
    if (t > now_) now_ = t;
  }

 private:
  TimeNs now_ = 0;
};

}  // namespace metronome
