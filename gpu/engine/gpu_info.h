// Which GPU this is and what it has.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

struct GpuInfo {
  std::int32_t device = 0;
  std::string name;            // "NVIDIA H200"
  int compute_capability = 0;  // 90 = 9.0
  int num_processors = 0;      // streaming multiprocessors
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t free_bytes = 0;  // when it was looked at
  int driver_version = 0;       // the CUDA version the driver speaks, 13000 = 13.0
  int runtime_version = 0;

  // "NVIDIA H200, CUDA 13.0, driver for CUDA 13.0".
  std::string text() const;
};

// The oldest the kernels run on: bfloat16 tensor cores and asynchronous copies came with it.
constexpr int kOldestCapability = 80;

// Makes `device` the one that this thread uses. Throws ConfigError, one sentence, when there is no
// driver, no such GPU, or one older than kOldestCapability.
GpuInfo open_gpu(std::int32_t device);

// Of the device that this thread uses.
int num_processors();

}  // namespace metronome
