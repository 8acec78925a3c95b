// What tests can ask of the emulated device, and do to it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace metronome::emulator {

// Everything as at the start of the program: no pending work, no error, no limits, seed 0. Streams,
// events, graphs and memory stay valid.
void reset();

// Every order that a GPU leaves open follows from the seed: blocks, clusters, warps, lanes between
// collectives, the moment of asynchronous copies, progress of streams.
void set_seed(std::uint64_t seed);

// How much cudaMalloc can hand out in all; 80 GB unless set.
void set_memory_limit(std::size_t bytes);
// Of device memory, handed out and not freed; of pinned host memory.
std::size_t bytes_allocated();
std::size_t pinned_bytes_allocated();

// What a machine without a device or driver answers to every call; cudaSuccess: there is one.
void set_device_count_error(cudaError_t error);
// Of the architectures 8.0, 8.6, 8.9 and 9.0; decides on how much shared memory there is.
void set_compute_capability(int major, int minor);
void set_num_multiprocessors(int count);

// The launch after `num_before` others (kernels and graphs count) returns `error`.
void fail_launch(int num_before, cudaError_t error);
inline void fail_next_launch(cudaError_t error) { fail_launch(0, error); }
// The kernel that is executed after `num_before` others breaks the device: it does nothing, and
// all calls answer `error` from then on.
void fail_execution(int num_before, cudaError_t error);

// Called by every thread where it waits for the kernels in front of its own: what it changes in
// device memory is what they do. Must not call the API. Until reset().
void set_join_hook(std::function<void()> hook);

// Kernels enqueued by cudaLaunchKernelEx (captured ones too), kernels executed, graphs launched;
// since the start or reset().
std::int64_t num_launches();
std::int64_t num_kernels_executed();
std::int64_t num_graph_launches();
// Of one kernel: enqueued launches.
std::int64_t num_launches_of(const void* kernel);
template <class... Parameters>
std::int64_t num_launches_of(void (*kernel)(Parameters...)) {
  return num_launches_of(reinterpret_cast<const void*>(kernel));
}

// Live objects, for tests of leaks.
std::size_t num_streams();
std::size_t num_events();
std::size_t num_graphs();  // graphs and executable graphs

// The last message of a kernel that broke the device ("" if none did); also written to stderr
// unless silenced.
const char* last_failure();
void set_failures_silent(bool are_silent);

}  // namespace metronome::emulator
