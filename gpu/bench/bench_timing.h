// SPDX-License-Identifier: Apache-2.0
// Measures times on a device, and the rates for floors.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/engine/device_memory.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/plan/step_floor.h"

namespace metronome {

constexpr std::int32_t kTimingWarmups = 2;

// For an even number of values, the larger of the two middle ones. Requires at least one value.
double median(std::vector<double> values);

// Microseconds, one entry per run.
struct Timings {
  std::vector<double> device;
  std::vector<double> host;  // time to enqueue the run
};

// Runs `enqueue` repeatedly. Before each timed run, an untimed one keeps the device busy while the
// host enqueues the timed one. The first kTimingWarmups repetitions do not count. Waits. Throws
// CudaError.
template <class Enqueue>
Timings time_on(cudaStream_t stream, std::int32_t repeats, const Enqueue& enqueue) {
  using Clock = std::chrono::steady_clock;
  const CudaEvent begin = make_event();
  const CudaEvent end = make_event();
  Timings timings;
  for (std::int32_t i = 0; i < kTimingWarmups + repeats; ++i) {
    enqueue();
    check_cuda(cudaEventRecord(begin.get(), stream), "cudaEventRecord");
    const Clock::time_point before = Clock::now();
    enqueue();
    const std::chrono::duration<double, std::micro> host = Clock::now() - before;
    check_cuda(cudaEventRecord(end.get(), stream), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end.get()), "a timed step");
    if (i < kTimingWarmups) continue;
    timings.device.push_back(elapsed_ms(begin, end) * 1e3);
    timings.host.push_back(host.count());
  }
  return timings;
}

// Fills the whole array with noise. With zeros a GPU draws less power and clocks higher.
void fill_with_noise(const DeviceArray<__nv_bfloat16>& array, std::uint64_t key,
                     cudaStream_t stream);

// Measures a copy many times as large as the L2 cache, and a product that keeps every SM busy.
// Takes medians of `repeats` runs. Calls `poll` between them. Throws CudaError.
MachineRates measure_rates(const GpuInfo& gpu, std::int32_t repeats,
                           const std::function<void()>& poll);

}  // namespace metronome
