// Times on a device, and the rates that floors are made of.
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

// Of an even number of values the larger of the two in the middle. Requires one at least.
double median(std::vector<double> values);

// Microseconds, one entry a run.
struct Timings {
  std::vector<double> device;
  std::vector<double> host;  // until it was enqueued
};

// Runs `enqueue` again and again, each time behind a run that is not counted and keeps the device
// busy while the host enqueues the one that is. The first kTimingWarmups times are not counted
// either. Waits. Throws CudaError.
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

// Noise in all of an array: on zeros a GPU draws less power, and clocks higher.
void fill_with_noise(const DeviceArray<__nv_bfloat16>& array, std::uint64_t key,
                     cudaStream_t stream);

// Of a copy as large as the L2 cache many times over, and of a product that keeps every processor
// busy; medians of `repeats`. Calls `poll` between them. Throws CudaError.
MachineRates measure_rates(const GpuInfo& gpu, std::int32_t repeats,
                           const std::function<void()>& poll);

}  // namespace metronome
