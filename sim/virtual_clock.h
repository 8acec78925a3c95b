// SPDX-License-Identifier: Apache-2.0
// Simulated time: waiting costs nothing.
#pragma once

#include "core/engine/clock.h"

namespace metronome {

class VirtualClock final : public Clock {
 public:
  TimeNs now() const override { return now_; }
  // Jumps to `t`. Waiting for a past time leaves the clock unchanged.
  void wait_until(TimeNs t) override {
    if (t > now_) now_ = t;
  }

 private:
  TimeNs now_ = 0;
};

}  // namespace metronome
