// SPDX-License-Identifier: Apache-2.0
// Lets tests inspect and control the emulated device.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace metronome::emulator {

// Restores the state at program start: no pending work, no error, no limits, seed 0. Streams,
// events, graphs and memory stay valid.
void reset();

// The seed decides every order that a GPU leaves open: of blocks, clusters, warps, lanes between
// collectives, asynchronous copies, and progress of streams.
void set_seed(std::uint64_t seed);

// Total memory for cudaMalloc; 80 GB unless set.
void set_memory_limit(std::size_t bytes);
// Bytes currently allocated: of device memory, and of pinned host memory.
std::size_t bytes_allocated();
std::size_t pinned_bytes_allocated();

// The error of every call without a device or driver; cudaSuccess: there is a device.
void set_device_count_error(cudaError_t error);
// One of 8.0, 8.6, 8.9 and 9.0. Decides how much shared memory there is.
void set_compute_capability(int major, int minor);
void set_num_multiprocessors(int count);

// The launch after `num_before` others returns `error`. Kernels and graphs count.
void fail_launch(int num_before, cudaError_t error);
inline void fail_next_launch(cudaError_t error) { fail_launch(0, error); }
// The kernel executed after `num_before` others breaks the device. It does nothing, and all later
// calls return `error`.
void fail_execution(int num_before, cudaError_t error);

// Every thread calls the hook where it waits for earlier kernels. Changes to device memory by the
// hook act as those kernels' writes. It must not call the API. Valid until reset().
void set_join_hook(std::function<void()> hook);

// Counts since the start or reset(): kernels enqueued by cudaLaunchKernelEx (also captured ones),
// kernels executed, graphs launched.
std::int64_t num_launches();
std::int64_t num_kernels_executed();
std::int64_t num_graph_launches();
// Enqueued launches of one kernel.
std::int64_t num_launches_of(const void* kernel);
template <class... Parameters>
std::int64_t num_launches_of(void (*kernel)(Parameters...)) {
  return num_launches_of(reinterpret_cast<const void*>(kernel));
}

// Live objects, to test for leaks.
std::size_t num_streams();
std::size_t num_events();
std::size_t num_graphs();  // graphs and executable graphs

// The last message of a kernel that broke the device, or "". Also written to stderr unless
// silenced.
const char* last_failure();
void set_failures_silent(bool are_silent);

}  // namespace metronome::emulator
