// SPDX-License-Identifier: Apache-2.0
// The emulated device: its memory, its streams and their pending work.
//
// The host's threads do the work when they need its result. All members are used under mutex().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpu/emulator/aligned_memory.h"
#include "gpu/emulator/cuda_runtime.h"
#include "gpu/emulator/fibers.h"
#include "gpu/emulator/random.h"

namespace metronome::emulator {

// Whether a piece of work is done. Until then it is in the queue of `stream`.
struct Ticket {
  CUstream_st* stream = nullptr;
  bool is_done = false;
  std::chrono::steady_clock::time_point done_at;
};
using TicketPtr = std::shared_ptr<Ticket>;

using Action = std::function<void()>;

struct Work {
  Action action;  // may be empty
  std::vector<TicketPtr> after;
  TicketPtr ticket;
};

// A step of a graph; runs after the nodes with the indices `after`.
struct Node {
  Action action;
  std::set<std::size_t> after;
};
using Nodes = std::vector<Node>;

// The nodes captured from one cudaStreamBeginCapture to its end.
struct Capture {
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool is_valid = true;
  Nodes nodes;
};
using CapturePtr = std::shared_ptr<Capture>;

}  // namespace metronome::emulator

struct CUstream_st {
  bool is_blocking = false;   // waits for the legacy stream, which also waits for it
  bool is_destroyed = false;  // invalid for the host; deleted when its work is done
  std::deque<metronome::emulator::Work> queue;
  metronome::emulator::TicketPtr last;  // of the latest work; null: none yet
  metronome::emulator::CapturePtr capture;
  std::set<std::size_t> frontier;  // nodes of the capture that the next node runs after
};

struct CUevent_st {
  bool has_timing = true;
  metronome::emulator::TicketPtr recorded;  // null: never
  metronome::emulator::CapturePtr capture;  // of the latest record, if it was captured
  std::set<std::size_t> frontier;
};

struct CUgraph_st {
  std::shared_ptr<const metronome::emulator::Nodes> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const metronome::emulator::Nodes> nodes;
};

namespace metronome::emulator {

template <class T>
using Registry = std::map<const T*, std::unique_ptr<T>>;

// The settings that reset() restores.
struct Settings {
  std::uint64_t seed = 0;
  std::size_t memory_limit = std::size_t{80} << 30;
  cudaError_t device_count_error = cudaSuccess;
  int major = 9;
  int minor = 0;
  int num_multiprocessors = 3;
  std::int64_t launches_before_failure = -1;  // < 0: no failure is planned
  cudaError_t launch_error = cudaSuccess;
  std::int64_t executions_before_failure = -1;
  cudaError_t execution_error = cudaSuccess;
  bool are_failures_silent = false;
  std::function<void()> join_hook;
};

struct Counters {
  std::int64_t num_launches = 0;
  std::int64_t num_executed = 0;
  std::int64_t num_graph_launches = 0;
  std::map<const void*, std::int64_t> launches_of;
};

class Device {
 public:
  Device();

  std::mutex& mutex() { return mutex_; }

  // The error that a call returns at once: no driver, or a broken device.
  cudaError_t status() const;

  // Streams. nullptr is the legacy stream. find() returns null for an invalid handle.
  CUstream_st* find(cudaStream_t handle);
  cudaError_t issue(CUstream_st& stream, Action action);  // at the end of its queue or capture
  cudaError_t wait_for(CUstream_st& stream, const CUevent_st& event);
  cudaError_t record(CUstream_st& stream, CUevent_st& event);

  // These do the required work, and at random more. They end early if the device breaks.
  void finish(const Ticket& ticket);
  void finish(const CUstream_st& stream);
  void finish_all();
  void advance_by_chance();
  bool is_idle(const CUstream_st& stream) const;

  cudaError_t begin_capture(CUstream_st& stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(CUstream_st& stream, Nodes& nodes);
  // Errors of calls that a capture in progress forbids. Such a call invalidates the capture.
  cudaError_t check_unsafe_call();
  cudaError_t check_synchronising_call();
  static void spoil(Capture& capture) { capture.is_valid = false; }

  void run_nodes(const Nodes& nodes);
  void execute(const KernelLaunch& launch);
  void fail(cudaError_t error, const std::string& message);  // all later calls return `error`
  cudaError_t next_launch_error();

  // Memory.
  cudaError_t allocate(void** pointer, std::size_t size);
  bool free(void* pointer);
  cudaError_t allocate_pinned(void** pointer, std::size_t size);
  bool free_pinned(void* pointer);
  bool is_device_memory(const void* pointer, std::size_t size) const;
  bool is_device_memory(const void* pointer) const;
  bool is_pinned_memory(const void* pointer, std::size_t size) const;
  std::size_t bytes_allocated() const { return bytes_allocated_; }
  std::size_t pinned_bytes_allocated() const { return pinned_bytes_allocated_; }

  void set_seed(std::uint64_t seed);
  void reset();

  Settings settings;
  Counters counters;
  std::map<const void*, int> max_dynamic_shared;  // what cudaFuncSetAttribute allowed
  Registry<CUstream_st> streams;
  Registry<CUevent_st> events;
  Registry<CUgraph_st> graphs;
  Registry<CUgraphExec_st> graph_execs;
  FastRandom random;
  cudaError_t sticky_error = cudaSuccess;
  std::string failure;

 private:
  struct Allocation {
    AlignedMemory memory;
    std::size_t size = 0;
  };
  using Allocations = std::map<const void*, Allocation>;

  // Device memory is accessible during this object's lifetime. AddressSanitizer reports other
  // accesses.
  class MemoryAccess {
   public:
    explicit MemoryAccess(const Device& gpu);
    MemoryAccess(const MemoryAccess&) = delete;
    MemoryAccess& operator=(const MemoryAccess&) = delete;
    ~MemoryAccess();

   private:
    const Device& gpu_;
  };

  std::vector<CUstream_st*> all_streams();
  bool is_ready(const Work& work) const;
  bool run_any();
  void run_towards(const Ticket& ticket);
  void run_head(CUstream_st& stream);
  static bool contains(const Allocations& allocations, const void* pointer, std::size_t size);

  std::mutex mutex_;
  CUstream_st legacy_;
  std::vector<std::weak_ptr<Capture>> captures_;
  Allocations device_memory_;
  Allocations pinned_memory_;
  std::size_t bytes_allocated_ = 0;
  std::size_t pinned_bytes_allocated_ = 0;
};

// The only device of the process.
Device& device();

// Maximum dynamic shared memory of a block, and the total of an SM.
std::size_t max_shared_per_block(int major, int minor);
std::size_t shared_per_multiprocessor(int major, int minor);
int max_threads_per_multiprocessor(int major, int minor);

// The limits of a kernel without cudaFuncSetAttribute.
constexpr std::size_t kDefaultShared = 48 * 1024;
constexpr unsigned kMaxThreadsPerBlock = 1024;
constexpr unsigned kMaxBlocksPerCluster = 8;  // the portable maximum of GPUs with clusters

}  // namespace metronome::emulator
