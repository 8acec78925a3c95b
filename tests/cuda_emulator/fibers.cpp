#include "tests/cuda_emulator/fibers.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string_view>

#include "tests/cuda_emulator/aligned_memory.h"
#include "tests/cuda_emulator/emulated_ptx.h"
#include "tests/cuda_emulator/sanitizer.h"

constinit thread_local uint3 threadIdx = {};
constinit thread_local uint3 blockIdx = {};
constinit thread_local dim3 blockDim = {};
constinit thread_local dim3 gridDim = {};

namespace metronome::emulator {

constinit thread_local unsigned char* dynamic_shared = nullptr;

namespace {

namespace context = boost::context::detail;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kStackBytes = 64 * kPage;
// Stacks begin at different offsets of a page, or the hot lines of all fibers would share one set
// of the cache.
constexpr std::size_t kColours = 64;
constexpr std::size_t kColourBytes = 64;

// Grows as it is touched; the lowest page is a guard.
void* allocate_stack() {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kPage, PROT_NONE) != 0) {
    std::fputs("CUDA emulator: no memory for the stacks of fibers\n", stderr);
    std::abort();
  }
  return memory;
}

constinit thread_local BlockRunner* running = nullptr;

// Takes over from the fiber that was left for this one.
EMULATOR_NOT_SANITIZED void arrive(const context::transfer_t& transfer, ExecutionContext& self) {
  auto& previous = *static_cast<ExecutionContext*>(transfer.data);
  previous.resume = transfer.fctx;
  finish_switch(self.fake_stack, previous.stack_bottom, previous.stack_size);
}

EMULATOR_NOT_SANITIZED void start_fiber(context::transfer_t transfer) {
  BlockRunner& runner = this_runner();
  Fiber& self = runner.current();
  arrive(transfer, self);
  runner.fiber_main();
}

std::string to_text(const dim3& size) {
  return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
}

std::string to_text(const uint3& index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ")";
}

uint3 index_of(std::size_t linear, const dim3& size) {
  return {static_cast<unsigned>(linear % size.x), static_cast<unsigned>(linear / size.x % size.y),
          static_cast<unsigned>(linear / size.x / size.y)};
}

// "... [with Type = void(int)]" of g++, "... [Type = void (int)]" of clang.
std::string kernel_type(std::string_view text) {
  constexpr std::string_view kBegin = "Type = ";
  const std::size_t begin = text.find(kBegin);
  if (begin == std::string_view::npos || !text.ends_with(']')) return std::string(text);
  text.remove_prefix(begin + kBegin.size());
  text.remove_suffix(1);
  return std::string(text);
}

const char* name_of(Barrier barrier) {
  switch (barrier) {
    case Barrier::Plain: return "__syncthreads";
    case Barrier::Count: return "__syncthreads_count";
    case Barrier::And: return "__syncthreads_and";
    case Barrier::Or: return "__syncthreads_or";
    case Barrier::Phase: return "barrier_wait";
  }
  return "";
}

bool is_same_place(const Where& one, const Where& other) {
  return one.line == other.line &&
         (one.file == other.file || std::strcmp(one.file, other.file) == 0);
}

bool is_same_call(const WarpCall& one, const WarpCall& other) {
  return one.operation == other.operation && one.mask == other.mask &&
         (!one.operation->is_aligned || is_same_place(one.where, other.where));
}

}  // namespace

BlockRunner& this_runner() {
  if (running == nullptr) {
    std::fputs("CUDA emulator: the host called a function of device code\n", stderr);
    std::abort();
  }
  return *running;
}

std::optional<DeviceFailure> run_kernel(const KernelLaunch& launch, std::uint64_t seed) {
  static thread_local BlockRunner runner;
  running = &runner;
  std::optional<DeviceFailure> failure = runner.run(launch, seed);
  running = nullptr;
  return failure;
}

std::string described(const char* what, Where where) {
  return std::string(what) + " at " + where.file + ":" + std::to_string(where.line);
}

BlockRunner::BlockRunner() = default;

BlockRunner::~BlockRunner() {
  for (void* stack : stacks_) munmap(stack, kStackBytes);
  for (const Fiber& fiber : fibers_) destroy_shadow(fiber.shadow);
}

void BlockRunner::grow(std::size_t num_threads) {
  while (stacks_.size() < num_threads) stacks_.push_back(allocate_stack());
  while (fibers_.size() < num_threads) fibers_.emplace_back().shadow = create_shadow();
}

std::optional<DeviceFailure> BlockRunner::run(const KernelLaunch& launch, std::uint64_t seed) {
  launch_ = &launch;
  random_ = FastRandom(seed);
  failure_.reset();
  num_threads_ = std::size_t{launch.block.x} * launch.block.y * launch.block.z;
  grow(num_threads_);
  AlignedMemory shared;
  if (launch.shared_bytes > 0) shared = allocate_aligned(1024, launch.shared_bytes);
  blockDim = launch.block;
  gridDim = launch.grid;
  dynamic_shared = static_cast<unsigned char*>(shared.get());

  std::vector<std::size_t> order(std::size_t{launch.grid.x} * launch.grid.y * launch.grid.z);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
  for (const std::size_t block : order) {
    // What an earlier block left is gone: as float or bfloat16, this is NaN.
    if (shared) std::memset(shared.get(), 0xff, launch.shared_bytes);
    blockIdx = index_of(block, launch.grid);
    run_block();
    if (failure_) {
      forget_stacks();
      break;
    }
  }
  dynamic_shared = nullptr;
  return failure_;
}

void BlockRunner::run_block() {
  const std::size_t num_warps = (num_threads_ + kWarpSize - 1) / kWarpSize;
  for (std::size_t i = 0; i < num_warps; ++i) {
    Warp& warp = warps_[i];
    warp = {};
    warp.index = static_cast<unsigned>(i);
    shuffle_lanes(warp);
  }
  ready_warps_ = 0;
  for (std::size_t i = 0; i < num_threads_; ++i) {
    Fiber& fiber = fibers_[i];
    fiber.thread_index = index_of(i, launch_->block);
    fiber.warp = &warps_[i / kWarpSize];
    fiber.lane = static_cast<unsigned>(i % kWarpSize);
    fiber.has_exited = false;
    fiber.has_joined = false;
    fiber.waiting = {};
    fiber.copies.clear();
    fiber.num_groups = 0;
    char* const bottom = static_cast<char*>(stacks_[i]) + kPage;
    fiber.stack_bottom = bottom;
    fiber.stack_size = kStackBytes - kPage - i % kColours * kColourBytes;
    fiber.resume = context::make_fcontext(bottom + fiber.stack_size, fiber.stack_size, start_fiber);
    fiber.warp->lanes[fiber.lane] = &fiber;
    make_ready(*fiber.warp, 1u << fiber.lane);
  }
  num_alive_ = num_threads_;
  num_at_barrier_ = 0;
  boxes_.clear();
  running_warp_ = nullptr;
  host_.shadow = current_shadow();
  current_context_ = &host_;
  switch_to(*pick(), false);
  if (!failure_ && !boxes_.empty()) {
    failure_ = DeviceFailure{
        cudaErrorLaunchFailure,
        "block " + to_text(blockIdx) + " of launch " + std::to_string(launch_->number) +
            " ended while " + std::to_string(boxes_.size()) + " copies of boxes were on their way"};
  }
}

EMULATOR_NOT_SANITIZED void BlockRunner::fiber_main() {
  launch_->body();
  Fiber& self = *current_;
  if (launch_->is_early && !self.has_joined) {
    fail(cudaErrorLaunchFailure,
         [] { return std::string("was launched early and did not wait for the kernel in front"); });
  }
  if (!self.warp->products.empty()) {
    fail(cudaErrorLaunchFailure,
         [] { return std::string("ended while products of its warpgroup were on their way"); });
  }
  self.has_exited = true;
  --num_alive_;
  if (num_alive_ > 0 && num_at_barrier_ == num_alive_) finish_barrier();
  if (num_alive_ == 0) leave_fiber(host_);
  Fiber* const next = pick();
  if (next == nullptr) fail_deadlock();
  leave_fiber(*next);
}

// The running context is set aside and `next` goes on. `is_last`: nobody comes back to this one.
EMULATOR_NOT_SANITIZED void BlockRunner::switch_to(ExecutionContext& next, bool is_last) {
  ExecutionContext& self = *current_context_;
  const bool is_to_host = &next == &host_;
  current_context_ = &next;
  current_ = is_to_host ? nullptr : static_cast<Fiber*>(&next);
  if (!is_to_host) threadIdx = current_->thread_index;
  switch_shadow(next.shadow);
  start_switch(is_last ? nullptr : &self.fake_stack, next.stack_bottom, next.stack_size);
  const context::transfer_t transfer = context::jump_fcontext(next.resume, &self);
  arrive(transfer, self);
}

EMULATOR_NOT_SANITIZED void BlockRunner::leave_fiber(ExecutionContext& next) {
  switch_to(next, true);
  std::abort();  // nobody resumes a fiber that has left
}

// Fibers that a failure left in the middle never clean up their stacks.
void BlockRunner::forget_stacks() {
  for (std::size_t i = 0; i < num_threads_; ++i) {
    unpoison(static_cast<char*>(stacks_[i]) + kPage, kStackBytes - kPage);
    destroy_shadow(fibers_[i].shadow);
    fibers_[i].shadow = create_shadow();
  }
}

void BlockRunner::make_ready(Warp& warp, unsigned lanes) {
  warp.ready |= lanes;
  ready_warps_ |= 1u << warp.index;
}

// Half of the time as a warp would: all lanes in order.
void BlockRunner::shuffle_lanes(Warp& warp) {
  const std::uint32_t bits = random_.bits();
  warp.is_descending = (bits >> 31) != 0;
  warp.rotation = (bits & (1u << 30)) != 0 ? (bits >> 24) & 31u : 0;
}

// The next fiber to run, taken from the ready ones: the warp that runs goes on while it can.
Fiber* BlockRunner::pick() {
  while (ready_warps_ == 0 && finish_a_box()) {
  }
  if (running_warp_ == nullptr || running_warp_->ready == 0) {
    if (ready_warps_ == 0) return nullptr;
    const std::size_t start = random_.below((num_threads_ + kWarpSize - 1) / kWarpSize);
    const unsigned later = ready_warps_ >> start << start;
    running_warp_ =
        &warps_[static_cast<std::size_t>(std::countr_zero(later != 0 ? later : ready_warps_))];
  }
  Warp& warp = *running_warp_;
  const unsigned rotated = std::rotr(warp.ready, static_cast<int>(warp.rotation));
  const int offset =
      warp.is_descending ? 31 - std::countl_zero(rotated) : std::countr_zero(rotated);
  const unsigned lane = (static_cast<unsigned>(offset) + warp.rotation) & 31u;
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << warp.index);
  return warp.lanes[lane];
}

// The running fiber is ready or waits; returns when it is picked again.
void BlockRunner::give_way() {
  Fiber* const next = pick();
  if (next == nullptr) fail_deadlock();
  if (next != current_) switch_to(*next, false);
}

// Whether all lanes of the call's mask wait in the same call.
bool BlockRunner::is_complete(const Warp& warp, const WarpCall& call) {
  if ((warp.waiting & call.mask) != call.mask) return false;
  if (warp.is_uniform) return true;
  for (unsigned rest = call.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
    if (!is_same_call(warp.lanes[lane]->waiting.call, call)) return false;
  }
  return true;
}

void BlockRunner::warp_rendezvous(const WarpOperation& operation, unsigned mask, void* argument,
                                  Where where) {
  Fiber& self = *current_;
  Warp& warp = *self.warp;
  if ((mask >> self.lane & 1u) == 0) {
    fail(cudaErrorLaunchFailure,
         [&] { return described(operation.name, where) + ": the mask lacks the caller"; });
  }
  WarpCall& call = self.waiting.call;
  call.operation = &operation;
  call.mask = mask;
  call.where.file = where.file;
  call.where.line = where.line;
  if (warp.waiting == 0) {
    warp.first = &call;
    warp.is_uniform = true;
  } else if (warp.is_uniform) {
    warp.is_uniform = is_same_call(*warp.first, call);
  }
  warp.waiting |= 1u << self.lane;
  warp.arguments[self.lane] = argument;
  if (is_complete(warp, call)) finish_warp_operation(warp, call);
  give_way();
}

void BlockRunner::finish_warp_operation(Warp& warp, const WarpCall& call) {
  if (call.operation->run != nullptr) {
    std::array<void*, kWarpSize> arguments = warp.arguments;
    for (unsigned rest = ~call.mask; rest != 0; rest &= rest - 1) {
      arguments[static_cast<std::size_t>(std::countr_zero(rest))] = nullptr;
    }
    call.operation->run(arguments.data(), call.where);
  }
  warp.waiting &= ~call.mask;
  make_ready(warp, call.mask);
  shuffle_lanes(warp);
  if (random_.chance_in_power(3)) running_warp_ = nullptr;  // others may overtake
}

int BlockRunner::block_rendezvous(Barrier barrier, int predicate, Where where) {
  Fiber& self = *current_;
  self.waiting = {{nullptr, 0, where}, barrier, predicate, nullptr, 0};
  if (num_at_barrier_ == 0) first_at_barrier_ = &self;
  const Waiting& first = first_at_barrier_->waiting;
  if (!is_same_place(first.call.where, where)) {
    fail(cudaErrorLaunchFailure, [&] {
      return "divergent barriers: " + described(name_of(barrier), where) + ", while thread " +
             to_text(first_at_barrier_->thread_index) + " waits in " +
             described(name_of(first.barrier), first.call.where);
    });
  }
  ++num_at_barrier_;
  if (num_at_barrier_ == num_alive_) finish_barrier();
  give_way();
  return barrier_result_;
}

void BlockRunner::finish_barrier() {
  int count = 0;
  for (std::size_t i = 0; i < num_threads_; ++i) {
    Fiber& fiber = fibers_[i];
    if (fiber.has_exited) continue;
    count += fiber.waiting.predicate != 0 ? 1 : 0;
    make_ready(*fiber.warp, 1u << fiber.lane);
  }
  switch (first_at_barrier_->waiting.barrier) {
    case Barrier::Plain: barrier_result_ = 0; break;
    case Barrier::Count: barrier_result_ = count; break;
    case Barrier::And: barrier_result_ = count == static_cast<int>(num_alive_) ? 1 : 0; break;
    case Barrier::Or: barrier_result_ = count > 0 ? 1 : 0; break;
    case Barrier::Phase: break;  // no barrier of the block
  }
  num_at_barrier_ = 0;
  running_warp_ = nullptr;
  for (std::size_t i = 0; i * kWarpSize < num_threads_; ++i) shuffle_lanes(warps_[i]);
}

std::string BlockRunner::place(const Fiber* fiber) const {
  return "launch " + std::to_string(launch_->number) + " (" + kernel_type(launch_->type) +
         ", grid " + to_text(launch_->grid) + ", block " + to_text(launch_->block) + ", " +
         std::to_string(launch_->shared_bytes) + " bytes of dynamic shared memory), block " +
         to_text(blockIdx) + ", thread " + to_text(fiber->thread_index);
}

// Which threads wait for what: "32 threads wait in ..., the first is (0,0,0)".
std::string BlockRunner::waiting_threads() const {
  struct Group {
    int count = 0;
    const Fiber* first = nullptr;
  };
  std::map<std::string, Group> groups;
  for (std::size_t i = 0; i < num_threads_; ++i) {
    const Fiber& fiber = fibers_[i];
    const Waiting& waiting = fiber.waiting;
    std::string state = "have exited";
    if (!fiber.has_exited && waiting.call.operation == nullptr) {
      state = "wait in " + described(name_of(waiting.barrier), waiting.call.where);
    } else if (!fiber.has_exited) {
      char mask[32];
      std::snprintf(mask, sizeof mask, " with mask 0x%08x", waiting.call.mask);
      state = "wait in " + described(waiting.call.operation->name, waiting.call.where) + mask;
    }
    Group& group = groups[state];
    if (group.count++ == 0) group.first = &fiber;
  }
  std::string text;
  for (const auto& [state, group] : groups) {
    text += (text.empty() ? "" : "; ") + std::to_string(group.count) + " threads " + state +
            ", the first is " + to_text(group.first->thread_index);
  }
  return text;
}

void BlockRunner::block_on(const std::uint64_t* barrier, std::uint32_t parity, Where where) {
  current_->waiting = {{nullptr, 0, where}, Barrier::Phase, 0, barrier, parity};
  give_way();
}

void BlockRunner::wake(const std::uint64_t* barrier, std::uint32_t parity) {
  for (std::size_t i = 0; i < num_threads_; ++i) {
    Fiber& fiber = fibers_[i];
    Waiting& waiting = fiber.waiting;
    if (waiting.shared_barrier != barrier || waiting.parity != parity) continue;
    waiting.shared_barrier = nullptr;
    make_ready(*fiber.warp, 1u << fiber.lane);
  }
}

void BlockRunner::let_others() {
  if (toss()) return;
  make_ready(*current_->warp, 1u << current_->lane);
  running_warp_ = nullptr;
  give_way();
}

bool BlockRunner::finish_a_box() {
  if (boxes_.empty()) return false;
  std::swap(boxes_[random_.below(boxes_.size())], boxes_.back());
  const BoxCopy box = boxes_.back();
  boxes_.pop_back();
  perform(box);
  return true;
}

void BlockRunner::fail_deadlock() {
  fail(cudaErrorLaunchFailure, [this] { return "deadlock: " + waiting_threads(); });
}

void warp_rendezvous(const WarpOperation& operation, unsigned mask, void* argument, Where where) {
  this_runner().warp_rendezvous(operation, mask, argument, where);
}

int block_rendezvous(Barrier barrier, int predicate, Where where) {
  return this_runner().block_rendezvous(barrier, predicate, where);
}

}  // namespace metronome::emulator
