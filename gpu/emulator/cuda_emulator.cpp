// SPDX-License-Identifier: Apache-2.0
#include "gpu/emulator/cuda_emulator.h"

#include <mutex>
#include <utility>

#include "gpu/emulator/device.h"

namespace metronome::emulator {

namespace {

template <class Call>
auto locked(Call call) {
  const std::lock_guard lock(device().mutex());
  return call(device());
}

}  // namespace

void reset() {
  locked([](Device& gpu) { gpu.reset(); });
  cudaGetLastError();
}

void set_seed(std::uint64_t seed) {
  locked([&](Device& gpu) { gpu.set_seed(seed); });
}

void set_memory_limit(std::size_t bytes) {
  locked([&](Device& gpu) { gpu.settings.memory_limit = bytes; });
}

std::size_t bytes_allocated() {
  return locked([](Device& gpu) { return gpu.bytes_allocated(); });
}

std::size_t pinned_bytes_allocated() {
  return locked([](Device& gpu) { return gpu.pinned_bytes_allocated(); });
}

void set_device_count_error(cudaError_t error) {
  locked([&](Device& gpu) { gpu.settings.device_count_error = error; });
}

void set_compute_capability(int major, int minor) {
  locked([&](Device& gpu) {
    gpu.settings.major = major;
    gpu.settings.minor = minor;
  });
}

void set_num_multiprocessors(int count) {
  locked([&](Device& gpu) { gpu.settings.num_multiprocessors = count; });
}

void set_join_hook(std::function<void()> hook) {
  locked([&](Device& gpu) { gpu.settings.join_hook = std::move(hook); });
}

void fail_launch(int num_before, cudaError_t error) {
  locked([&](Device& gpu) {
    gpu.settings.launches_before_failure = num_before;
    gpu.settings.launch_error = error;
  });
}

void fail_execution(int num_before, cudaError_t error) {
  locked([&](Device& gpu) {
    gpu.settings.executions_before_failure = num_before;
    gpu.settings.execution_error = error;
  });
}

std::int64_t num_launches() {
  return locked([](Device& gpu) { return gpu.counters.num_launches; });
}

std::int64_t num_kernels_executed() {
  return locked([](Device& gpu) { return gpu.counters.num_executed; });
}

std::int64_t num_graph_launches() {
  return locked([](Device& gpu) { return gpu.counters.num_graph_launches; });
}

std::int64_t num_launches_of(const void* kernel) {
  return locked([&](Device& gpu) {
    const auto found = gpu.counters.launches_of.find(kernel);
    return found == gpu.counters.launches_of.end() ? std::int64_t{0} : found->second;
  });
}

std::size_t num_streams() {
  return locked([](Device& gpu) { return gpu.streams.size(); });
}

std::size_t num_events() {
  return locked([](Device& gpu) { return gpu.events.size(); });
}

std::size_t num_graphs() {
  return locked([](Device& gpu) { return gpu.graphs.size() + gpu.graph_execs.size(); });
}

const char* last_failure() {
  return locked([](Device& gpu) { return gpu.failure.c_str(); });
}

void set_failures_silent(bool are_silent) {
  locked([&](Device& gpu) { gpu.settings.are_failures_silent = are_silent; });
}

}  // namespace metronome::emulator
