// SPDX-License-Identifier: Apache-2.0
// Named stages on the timeline of NVIDIA's profilers.
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace metronome {

// Marks the work that the host enqueues during its lifetime. Costs nanoseconds without a profiler.
class ProfileRange {
 public:
  explicit ProfileRange(const char* stage) { nvtxRangePushA(stage); }
  ~ProfileRange() { nvtxRangePop(); }
  // Ends the stage and begins another.
  void next(const char* stage) {
    nvtxRangePop();
    nvtxRangePushA(stage);
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace metronome
