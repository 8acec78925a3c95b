// SPDX-License-Identifier: Apache-2.0
// Start and end times of steps on the device, on the host's clock.
#pragma once

#include <array>

#include "core/engine/clock.h"
#include "gpu/engine/device_memory.h"

namespace metronome {

// Events measure device time between each other to half a microsecond or better (CUDA Runtime API,
// cudaEventElapsedTime). They do not know the host's clock. If the host had to wait for a step, the
// step ended when the wait ended. Otherwise its end is the end of the step before plus the time
// between their events.
class StepTimer {
 public:
  explicit StepTimer(const Clock& clock);

  // Enqueue the events around a step. At most kMaxSteps - 1 steps are between begin() and wait().
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);

  struct Times {
    TimeNs started_at = 0;
    TimeNs finished_at = 0;
  };
  // Waits for the oldest step not yet waited for.
  Times wait();

  static constexpr std::size_t kMaxSteps = 3;

 private:
  struct Marks {
    CudaEvent begin;
    CudaEvent end;
    TimeNs launched_at = 0;
  };

  const Clock& clock_;
  std::array<Marks, kMaxSteps> marks_;
  std::size_t num_begun_ = 0;
  std::size_t num_waited_ = 0;
  TimeNs finished_at_ = 0;  // end of the latest step that wait() returned
};

}  // namespace metronome
