// SPDX-License-Identifier: Apache-2.0
// Runs the threads of a block, or of the blocks of a cluster, as fibers of one host thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpu/emulator/aligned_memory.h"
#include "gpu/emulator/cuda.h"
#include "gpu/emulator/cuda_runtime.h"
#include "gpu/emulator/random.h"

namespace metronome::emulator {

struct KernelLaunch {
  dim3 grid;
  dim3 block;
  unsigned cluster = 1;  // blocks, consecutive along x; divides grid.x
  std::size_t shared_bytes = 0;
  std::int64_t number = 0;     // counts launches, for messages
  const char* type = "";       // the kernel's, from type_text()
  bool is_early = false;       // its threads may run before the kernel before it has ended
  std::function<void()> body;  // the work of one thread
};

struct DeviceFailure {
  cudaError_t error = cudaErrorLaunchFailure;
  std::string message;
};

// Runs all clusters, each to its end, in an order that the seed decides. The threads of a cluster
// are alive at the same time. A failure ends the launch at once.
std::optional<DeviceFailure> run_kernel(const KernelLaunch& launch, std::uint64_t seed);

// A stack to switch to: a fiber's or the host's.
struct ExecutionContext {
  void* resume = nullptr;  // fcontext_t
  const void* stack_bottom = nullptr;
  std::size_t stack_size = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* shadow = nullptr;      // ThreadSanitizer's
};

struct AsyncCopy {
  void* to;
  const void* from;  // null: zeros
  std::int64_t group;
};

struct Block;

// A box in flight from a tensor to the shared memory of a block (hopper.cpp).
struct BoxCopy {
  Block* block = nullptr;
  void* to = nullptr;
  CUtensorMap tensor = {};
  std::int32_t column = 0;
  std::int32_t row = 0;
  std::uint64_t* barrier = nullptr;
  Where where;
};

// A box in flight from shared memory to a tensor (hopper.cpp).
struct BoxStore {
  Block* block = nullptr;
  const void* from = nullptr;
  CUtensorMap tensor = {};
  std::int32_t column = 0;
  std::int32_t row = 0;
  bool is_committed = false;
};

// One warp's part of a warpgroup's product that is still pending (hopper.cpp).
struct AsyncProduct {
  std::array<float*, kWarpSize> d{};
  std::array<const std::uint32_t*, kWarpSize> a{};
  std::uint64_t a_matrix = 0;
  std::uint64_t b_matrix = 0;
  std::size_t columns = 0;
  bool is_b_k_major = false;
  bool accumulates = true;
  std::int64_t group = 0;
};

// A collective in which a lane waits.
struct WarpCall {
  const WarpOperation* operation = nullptr;
  unsigned mask = 0;
  Where where;
};

// The operation that a thread waits for; a barrier if the warp operation is null.
struct Waiting {
  WarpCall call;
  Barrier barrier = Barrier::Plain;
  int predicate = 0;
  const std::uint64_t* shared_barrier = nullptr;  // for Barrier::Phase
  std::uint32_t parity = 0;
};

struct Warp;

struct Fiber : ExecutionContext {
  uint3 thread_index{};
  Warp* warp = nullptr;
  unsigned lane = 0;
  bool has_exited = false;
  bool has_joined = false;  // has waited for the earlier kernels
  Waiting waiting;
  std::vector<AsyncCopy> copies;  // pending, oldest first
  std::int64_t num_groups = 0;    // committed groups of copies
  std::vector<BoxStore> stores;   // pending
};

struct Warp {
  Block* block = nullptr;
  unsigned index = 0;     // in its block
  unsigned members = 0;   // lanes that exist in the block
  unsigned ready = 0;     // lanes that can run, without the running one
  unsigned waiting = 0;   // lanes in a collective of the warp
  unsigned rotation = 0;  // first lane in the running order, up- or downwards
  bool is_descending = false;
  // All waiting lanes are in calls like the first one's, so these complete together. Set again when
  // a lane waits and no other does.
  bool is_uniform = true;
  const WarpCall* first = nullptr;
  std::array<void*, kWarpSize> arguments{};  // of the waiting lanes
  std::array<Fiber*, kWarpSize> lanes{};
  std::vector<AsyncProduct> products;  // oldest first
  std::int64_t num_product_groups = 0;
  bool is_product_fenced = false;  // there was a fence since the last wait
  bool is_product_eager = false;   // products happen at once, until the next wait
};

// A block of the running cluster. Barriers count threads.
struct Block {
  unsigned rank = 0;  // in its cluster
  uint3 index{};
  AlignedMemory memory;         // null: none
  std::size_t first_fiber = 0;  // index in the runner; the block's other fibers follow
  std::array<Warp, kWarpSize> warps;
  unsigned ready_warps = 0;
  std::size_t num_alive = 0;
  std::size_t num_at_barrier = 0;
  Fiber* first_at_barrier = nullptr;
  int barrier_result = 0;
  // Bytes that reached the block's barriers before these expected them.
  std::int64_t num_early_bytes = 0;

  unsigned char* shared() const { return static_cast<unsigned char*>(memory.get()); }
};

// Runs clusters of blocks and owns the stacks. Each host thread has one.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  std::optional<DeviceFailure> run(const KernelLaunch& launch, std::uint64_t seed);

  Fiber& current() { return *current_; }
  const KernelLaunch& launch() const { return *launch_; }
  Block& block(std::size_t rank) { return blocks_[rank]; }  // of the running cluster
  void warp_rendezvous(const WarpOperation& operation, unsigned mask, void* argument, Where where);
  int block_rendezvous(Barrier barrier, int predicate, Where where);
  // Waits for all threads of the cluster that have not exited.
  void cluster_rendezvous(Where where);
  // Ends the kernel. `make_text` makes the message. A string made by the caller would never be
  // freed, because this fiber is not resumed.
  template <class MakeText>
  [[noreturn]] void fail(cudaError_t error, MakeText make_text) {
    failure_ = DeviceFailure{error, place(current_) + ": " + make_text()};
    leave_fiber(host_);
  }
  // Waits until wake() reports that the barrier's phase of this parity is over.
  void block_on(const std::uint64_t* barrier, std::uint32_t parity, Where where);
  void wake(const std::uint64_t* barrier, std::uint32_t parity);
  // With probability 1/2, lets other warps run. Returns when this fiber is picked again.
  void let_others();
  // Boxes in flight. finish_a_box() performs a random one now; false if there is none.
  void add_box(const BoxCopy& box) { boxes_.push_back(box); }
  bool finish_a_box();
  bool toss() { return (random_.bits() >> 31) != 0; }

  void fiber_main();  // entry of a new fiber

 private:
  void grow(std::size_t num_threads);
  void run_cluster();
  void start_block(Block& block);
  void end_block(const Block& block);
  static bool is_complete(const Warp& warp, const WarpCall& call);
  void finish_warp_operation(Warp& warp, const WarpCall& call);
  void finish_barrier(Block& block);
  void finish_cluster_barrier();
  void make_ready(Warp& warp, unsigned lanes);
  void shuffle_lanes(Warp& warp);
  std::size_t draw_bit(unsigned bits, std::size_t count);
  Fiber* pick();
  void give_way();
  [[noreturn]] void fail_deadlock();
  void switch_to(ExecutionContext& next, bool is_last);
  [[noreturn]] void leave_fiber(ExecutionContext& next);
  void forget_stacks();
  std::string place(const Fiber* fiber) const;
  std::string waiting_threads() const;

  const KernelLaunch* launch_ = nullptr;
  FastRandom random_;
  std::vector<Fiber> fibers_;
  std::vector<void*> stacks_;
  std::vector<Block> blocks_;    // of the running cluster, by rank
  std::size_t num_threads_ = 0;  // per block
  std::size_t num_warps_ = 0;
  unsigned ready_blocks_ = 0;
  Warp* running_warp_ = nullptr;
  std::size_t num_alive_ = 0;  // of the cluster, like the following members
  std::size_t num_at_cluster_barrier_ = 0;
  std::vector<BoxCopy> boxes_;
  ExecutionContext host_;
  ExecutionContext* current_context_ = nullptr;
  Fiber* current_ = nullptr;
  std::optional<DeviceFailure> failure_;
};

// The runner of this host thread. Ends the program if no kernel runs.
BlockRunner& this_runner();

// Performs the copy.
void perform(const BoxCopy& box);

// "name at file:line".
std::string described(const char* what, Where where);

}  // namespace metronome::emulator
