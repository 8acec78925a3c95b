// The threads of a block, or of the blocks of a cluster, as fibers of one thread of the host.
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
  const char* type = "";       // of the kernel, from type_text()
  bool is_early = false;       // its threads may run before the kernel in front has ended
  std::function<void()> body;  // of one thread
};

struct DeviceFailure {
  cudaError_t error = cudaErrorLaunchFailure;
  std::string message;
};

// Runs all clusters, each to its end, in an order that follows from the seed; the threads of a
// cluster are alive together. A failure ends the launch where it happened.
std::optional<DeviceFailure> run_kernel(const KernelLaunch& launch, std::uint64_t seed);

// Where a stack can be switched to; the host's is one too.
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

// A box of a tensor on its way to the shared memory of a block (hopper.cpp).
struct BoxCopy {
  Block* block = nullptr;
  void* to = nullptr;
  CUtensorMap tensor = {};
  std::int32_t column = 0;
  std::int32_t row = 0;
  std::uint64_t* barrier = nullptr;
  Where where;
};

// A box on its way from shared memory to a tensor (hopper.cpp).
struct BoxStore {
  Block* block = nullptr;
  const void* from = nullptr;
  CUtensorMap tensor = {};
  std::int32_t column = 0;
  std::int32_t row = 0;
  bool is_committed = false;
};

// A product of a warpgroup that has not happened, as far as one of its warps does it (hopper.cpp).
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

// A collective that a lane waits in.
struct WarpCall {
  const WarpOperation* operation = nullptr;
  unsigned mask = 0;
  Where where;
};

// What a thread waits for: a barrier, if the warp's operation is null.
struct Waiting {
  WarpCall call;
  Barrier barrier = Barrier::Plain;
  int predicate = 0;
  const std::uint64_t* shared_barrier = nullptr;  // of Barrier::Phase
  std::uint32_t parity = 0;
};

struct Warp;

struct Fiber : ExecutionContext {
  uint3 thread_index{};
  Warp* warp = nullptr;
  unsigned lane = 0;
  bool has_exited = false;
  bool has_joined = false;  // waited for the kernel in front
  Waiting waiting;
  std::vector<AsyncCopy> copies;  // that have not happened, oldest first
  std::int64_t num_groups = 0;    // of copies, committed
  std::vector<BoxStore> stores;   // that have not happened
};

struct Warp {
  Block* block = nullptr;
  unsigned index = 0;     // in its block
  unsigned members = 0;   // lanes that the block has
  unsigned ready = 0;     // lanes that can run; the one that runs is not among them
  unsigned waiting = 0;   // lanes in a collective of the warp
  unsigned rotation = 0;  // lanes run from this one on, upwards or downwards
  bool is_descending = false;
  // All that wait do so in calls like the first one's, which are complete together; until nobody
  // waits.
  bool is_uniform = true;
  const WarpCall* first = nullptr;
  std::array<void*, kWarpSize> arguments{};  // of the lanes that wait
  std::array<Fiber*, kWarpSize> lanes{};
  std::vector<AsyncProduct> products;  // oldest first
  std::int64_t num_product_groups = 0;
  bool is_product_fenced = false;  // since its registers were the warp's own
  bool is_product_eager = false;   // until the next wait
};

// A block of the cluster that runs. What a barrier waits for is counted in threads.
struct Block {
  unsigned rank = 0;  // in its cluster
  uint3 index{};
  AlignedMemory memory;         // null: none
  std::size_t first_fiber = 0;  // of the runner's; the others follow
  std::array<Warp, kWarpSize> warps;
  unsigned ready_warps = 0;
  std::size_t num_alive = 0;
  std::size_t num_at_barrier = 0;
  Fiber* first_at_barrier = nullptr;
  int barrier_result = 0;
  // That came to its barriers and that these have not been told to expect yet.
  std::int64_t num_early_bytes = 0;

  unsigned char* shared() const { return static_cast<unsigned char*>(memory.get()); }
};

// Runs clusters of blocks; owns the stacks. One for each thread of the host.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  std::optional<DeviceFailure> run(const KernelLaunch& launch, std::uint64_t seed);

  Fiber& current() { return *current_; }
  const KernelLaunch& launch() const { return *launch_; }
  Block& block(std::size_t rank) { return blocks_[rank]; }  // of the cluster
  void warp_rendezvous(const WarpOperation& operation, unsigned mask, void* argument, Where where);
  int block_rendezvous(Barrier barrier, int predicate, Where where);
  // Waits for all threads of the cluster that have not exited.
  void cluster_rendezvous(Where where);
  // Ends the kernel. `make_text` makes the message: a string made by the caller would never be
  // freed, as nobody comes back to this fiber.
  template <class MakeText>
  [[noreturn]] void fail(cudaError_t error, MakeText make_text) {
    failure_ = DeviceFailure{error, place(current_) + ": " + make_text()};
    leave_fiber(host_);
  }
  // Waits until wake() for this barrier finds that the phase of the parity is over.
  void block_on(const std::uint64_t* barrier, std::uint32_t parity, Where where);
  void wake(const std::uint64_t* barrier, std::uint32_t parity);
  // Half of the time another warp goes on, and the fiber when it is picked again.
  void let_others();
  // Those that have not happened. One that is asked for happens now.
  void add_box(const BoxCopy& box) { boxes_.push_back(box); }
  bool finish_a_box();
  bool toss() { return (random_.bits() >> 31) != 0; }

  void fiber_main();  // what a new fiber does

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
  std::vector<Block> blocks_;    // of the cluster that runs, by rank
  std::size_t num_threads_ = 0;  // of a block
  std::size_t num_warps_ = 0;
  unsigned ready_blocks_ = 0;
  Warp* running_warp_ = nullptr;
  std::size_t num_alive_ = 0;  // of the cluster, as what follows
  std::size_t num_at_cluster_barrier_ = 0;
  std::vector<BoxCopy> boxes_;
  ExecutionContext host_;
  ExecutionContext* current_context_ = nullptr;
  Fiber* current_ = nullptr;
  std::optional<DeviceFailure> failure_;
};

// The one that runs a kernel in this thread of the host. Ends the program outside of kernels.
BlockRunner& this_runner();

// Does what a BoxCopy stands for.
void perform(const BoxCopy& box);

// "name at file:line".
std::string described(const char* what, Where where);

}  // namespace metronome::emulator
