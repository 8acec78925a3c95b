// SPDX-License-Identifier: Apache-2.0
// Single values and small arrays on the emulated device, for its tests.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "gpu/emulator/cuda_emulator.h"
#include "gpu/engine/device_memory.h"
#include "gpu/kernels/cuda_check.h"
#include "gpu/kernels/launch.h"
#include "tests/gpu/gpu_test.h"

namespace metronome::testing {

// A fresh emulator for each test, and for what follows.
class FreshEmulator {
 public:
  FreshEmulator() { emulator::reset(); }
  FreshEmulator(const FreshEmulator&) = delete;
  FreshEmulator& operator=(const FreshEmulator&) = delete;
  ~FreshEmulator() { emulator::reset(); }
};

constexpr std::uint64_t kNumSeeds = 16;

// Launches on the legacy stream; what cudaDeviceSynchronize says, with failures kept off stderr.
template <class... Parameters, class... Arguments>
cudaError_t run_kernel_quietly(void (*kernel)(Parameters...), const LaunchShape& shape,
                               Arguments&&... arguments) {
  emulator::set_failures_silent(true);
  launch(kernel, shape, nullptr, std::forward<Arguments>(arguments)...);
  return cudaDeviceSynchronize();
}

inline bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace metronome::testing
