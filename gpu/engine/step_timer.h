// When steps began and ended on the device, by the clock of the host.
#pragma once

#include <array>

#include "core/engine/clock.h"
#include "gpu/engine/device_memory.h"

namespace metronome {

// Events measure the device's time between each other to half a microsecond and better (CUDA
// Runtime API, cudaEventElapsedTime); they know no host clock. A step that the host waited for
// ended when the wait did; one that was over before ended as long after the step before it as the
// events say.
class StepTimer {
 public:
  explicit StepTimer(const Clock& clock);

  // Enqueues the marks around a step. At most kMaxSteps - 1 are between begin() and wait().
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);

  struct Times {
    TimeNs started_at = 0;
    TimeNs finished_at = 0;
  };
  // Waits for the oldest step that was not waited for yet.
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
  TimeNs finished_at_ = 0;  // of the step waited for last
};

}  // namespace metronome
