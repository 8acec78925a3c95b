// SPDX-License-Identifier: Apache-2.0
// The source of time. Code in core/ and sim/ reads no other clock.
#pragma once

#include "core/base/types.h"

namespace metronome {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs now() const = 0;
  // Returns once now() >= t. A virtual clock jumps; a real one sleeps. Never moves backwards.
  virtual void wait_until(TimeNs t) = 0;
};

}  // namespace metronome
