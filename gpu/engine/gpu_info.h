// SPDX-License-Identifier: Apache-2.0
// Identifies the GPU and reports its resources.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

struct GpuInfo {
  std::int32_t device = 0;
  std::string name;            // "NVIDIA H200"
  int compute_capability = 0;  // 90 = 9.0
  int num_processors = 0;      // SMs (streaming multiprocessors)
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t free_bytes = 0;  // at the time of open_gpu()
  int driver_version = 0;       // highest CUDA version of the driver, 13000 = 13.0
  int runtime_version = 0;

  // "NVIDIA H200, CUDA 13.0, driver for CUDA 13.0".
  std::string text() const;
};

// The oldest supported GPU: the kernels need bfloat16 tensor cores and asynchronous copies.
constexpr int kOldestCapability = 80;

// Makes `device` current for this thread. Throws ConfigError, one sentence, if there is no driver,
// no such GPU, or it is older than kOldestCapability.
GpuInfo open_gpu(std::int32_t device);

// SMs of the current device.
int num_processors();

}  // namespace metronome
