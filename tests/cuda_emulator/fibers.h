// The threads of a block as fibers of one thread of the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda_emulator/cuda.h"
#include "tests/cuda_emulator/cuda_runtime.h"
#include "tests/cuda_emulator/random.h"

namespace metronome::emulator {

struct KernelLaunch {
  dim3 grid;
  dim3 block;
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

// Runs all blocks, each to its end, in an order that follows from the seed. A failure ends the
// launch where it happened.
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

// A box of a tensor on its way to shared memory (hopper.cpp).
struct BoxCopy {
  void* to = nullptr;
  CUtensorMap tensor = {};
  std::int32_t column = 0;
  std::int32_t row = 0;
  std::uint64_t* barrier = nullptr;
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
};

struct Warp {
  unsigned index = 0;
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

// Runs blocks; owns the stacks. One for each thread of the host.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  std::optional<DeviceFailure> run(const KernelLaunch& launch, std::uint64_t seed);

  Fiber& current() { return *current_; }
  void warp_rendezvous(const WarpOperation& operation, unsigned mask, void* argument, Where where);
  int block_rendezvous(Barrier barrier, int predicate, Where where);
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
  void run_block();
  static bool is_complete(const Warp& warp, const WarpCall& call);
  void finish_warp_operation(Warp& warp, const WarpCall& call);
  void finish_barrier();
  void make_ready(Warp& warp, unsigned lanes);
  void shuffle_lanes(Warp& warp);
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
  std::array<Warp, kWarpSize> warps_;
  std::size_t num_threads_ = 0;
  unsigned ready_warps_ = 0;
  Warp* running_warp_ = nullptr;
  std::size_t num_alive_ = 0;
  std::size_t num_at_barrier_ = 0;
  Fiber* first_at_barrier_ = nullptr;
  int barrier_result_ = 0;
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
