// SPDX-License-Identifier: Apache-2.0
#include "gpu/emulator/fibers.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string_view>

#include "gpu/emulator/emulated_ptx.h"
#include "gpu/emulator/sanitizer.h"

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
// Stacks start at different page offsets. Otherwise the hot lines of all fibers would share one
// cache set.
constexpr std::size_t kColours = 64;
constexpr std::size_t kColourBytes = 64;

// The stack grows as it is touched. Its lowest page is a guard.
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

// Takes over from the fiber that switched to this one.
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

// g++ gives "... [with Type = void(int)]", clang "... [Type = void (int)]".
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
    case Barrier::Cluster: return "cluster_sync";
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
  num_warps_ = (num_threads_ + kWarpSize - 1) / kWarpSize;
  grow(num_threads_ * launch.cluster);
  blocks_.resize(launch.cluster);
  for (Block& block : blocks_) {
    if (launch.shared_bytes > 0) block.memory = allocate_aligned(1024, launch.shared_bytes);
  }
  blockDim = launch.block;
  gridDim = launch.grid;

  const dim3 clusters(launch.grid.x / launch.cluster, launch.grid.y, launch.grid.z);
  std::vector<std::size_t> order(std::size_t{clusters.x} * clusters.y * clusters.z);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
  for (const std::size_t cluster : order) {
    const uint3 index = index_of(cluster, clusters);
    for (unsigned rank = 0; rank < launch.cluster; ++rank) {
      blocks_[rank].rank = rank;
      blocks_[rank].index = {index.x * launch.cluster + rank, index.y, index.z};
    }
    run_cluster();
    if (failure_) {
      forget_stacks();
      break;
    }
  }
  for (Block& block : blocks_) block.memory.reset();
  dynamic_shared = nullptr;
  return failure_;
}

void BlockRunner::start_block(Block& block) {
  // Overwrites an earlier block's data with bytes that are NaN as float and bfloat16.
  if (block.memory) std::memset(block.memory.get(), 0xff, launch_->shared_bytes);
  block.first_fiber = block.rank * num_threads_;
  block.ready_warps = 0;
  block.num_alive = num_threads_;
  block.num_at_barrier = 0;
  block.num_early_bytes = 0;
  for (std::size_t i = 0; i < num_warps_; ++i) {
    Warp& warp = block.warps[i];
    warp = {};
    warp.block = &block;
    warp.index = static_cast<unsigned>(i);
    shuffle_lanes(warp);
  }
  for (std::size_t i = 0; i < num_threads_; ++i) {
    Fiber& fiber = fibers_[block.first_fiber + i];
    fiber.thread_index = index_of(i, launch_->block);
    fiber.warp = &block.warps[i / kWarpSize];
    fiber.lane = static_cast<unsigned>(i % kWarpSize);
    fiber.has_exited = false;
    fiber.has_joined = false;
    fiber.waiting = {};
    fiber.copies.clear();
    fiber.stores.clear();
    fiber.num_groups = 0;
    char* const bottom = static_cast<char*>(stacks_[block.first_fiber + i]) + kPage;
    fiber.stack_bottom = bottom;
    fiber.stack_size = kStackBytes - kPage - i % kColours * kColourBytes;
    fiber.resume = context::make_fcontext(bottom + fiber.stack_size, fiber.stack_size, start_fiber);
    fiber.warp->lanes[fiber.lane] = &fiber;
    fiber.warp->members |= 1u << fiber.lane;
    make_ready(*fiber.warp, 1u << fiber.lane);
  }
}

void BlockRunner::run_cluster() {
  ready_blocks_ = 0;
  for (Block& block : blocks_) start_block(block);
  num_alive_ = num_threads_ * blocks_.size();
  num_at_cluster_barrier_ = 0;
  boxes_.clear();
  running_warp_ = nullptr;
  host_.shadow = current_shadow();
  current_context_ = &host_;
  switch_to(*pick(), false);
}

// Copies must not reach the shared memory of a block that has ended: another block may own it then.
void BlockRunner::end_block(const Block& block) {
  const auto num_boxes = std::count_if(boxes_.begin(), boxes_.end(),
                                       [&](const BoxCopy& box) { return box.block == &block; });
  if (num_boxes > 0) {
    fail(cudaErrorLaunchFailure, [&] {
      return "the block ended while " + std::to_string(num_boxes) +
             " copies of boxes to it were in flight";
    });
  }
  if (block.num_early_bytes > 0) {
    fail(cudaErrorLaunchFailure, [&] {
      return "the block ended without expecting " + std::to_string(block.num_early_bytes) +
             " of the bytes that arrived at its barriers";
    });
  }
}

EMULATOR_NOT_SANITIZED void BlockRunner::fiber_main() {
  launch_->body();
  Fiber& self = *current_;
  if (launch_->is_early && !self.has_joined) {
    fail(cudaErrorLaunchFailure,
         [] { return std::string("was launched early and did not wait for the previous kernel"); });
  }
  if (!self.stores.empty()) {
    fail(cudaErrorLaunchFailure, [] {
      return std::string("ended while stores of boxes had not yet read its shared memory");
    });
  }
  if (!self.warp->products.empty()) {
    fail(cudaErrorLaunchFailure,
         [] { return std::string("ended while products of its warpgroup were in flight"); });
  }
  self.has_exited = true;
  Block& block = *self.warp->block;
  --num_alive_;
  --block.num_alive;
  if (block.num_alive == 0) {
    end_block(block);
  } else if (block.num_at_barrier == block.num_alive) {
    finish_barrier(block);
  }
  if (num_alive_ == 0) leave_fiber(host_);
  if (num_at_cluster_barrier_ == num_alive_) finish_cluster_barrier();
  Fiber* const next = pick();
  if (next == nullptr) fail_deadlock();
  leave_fiber(*next);
}

// Suspends the running context and continues `next`. `is_last`: this context is not resumed.
EMULATOR_NOT_SANITIZED void BlockRunner::switch_to(ExecutionContext& next, bool is_last) {
  ExecutionContext& self = *current_context_;
  const bool is_to_host = &next == &host_;
  current_context_ = &next;
  current_ = is_to_host ? nullptr : static_cast<Fiber*>(&next);
  if (!is_to_host) {
    const Block& block = *current_->warp->block;
    threadIdx = current_->thread_index;
    blockIdx = block.index;
    dynamic_shared = block.shared();
  }
  switch_shadow(next.shadow);
  start_switch(is_last ? nullptr : &self.fake_stack, next.stack_bottom, next.stack_size);
  const context::transfer_t transfer = context::jump_fcontext(next.resume, &self);
  arrive(transfer, self);
}

EMULATOR_NOT_SANITIZED void BlockRunner::leave_fiber(ExecutionContext& next) {
  switch_to(next, true);
  std::abort();  // a fiber that has left is never resumed
}

// Fibers that a failure interrupted never clean up their stacks.
void BlockRunner::forget_stacks() {
  for (std::size_t i = 0; i < num_threads_ * blocks_.size(); ++i) {
    unpoison(static_cast<char*>(stacks_[i]) + kPage, kStackBytes - kPage);
    destroy_shadow(fibers_[i].shadow);
    fibers_[i].shadow = create_shadow();
  }
}

void BlockRunner::make_ready(Warp& warp, unsigned lanes) {
  warp.ready |= lanes;
  warp.block->ready_warps |= 1u << warp.index;
  ready_blocks_ |= 1u << warp.block->rank;
}

// With probability 1/2 the order is that of a real warp: all lanes in order.
void BlockRunner::shuffle_lanes(Warp& warp) {
  const std::uint32_t bits = random_.bits();
  warp.is_descending = (bits >> 31) != 0;
  warp.rotation = (bits & (1u << 30)) != 0 ? (bits >> 24) & 31u : 0;
}

// A random set bit below `count`: the first from a random position on.
std::size_t BlockRunner::draw_bit(unsigned bits, std::size_t count) {
  const std::size_t start = random_.below(count);
  const unsigned later = bits >> start << start;
  return static_cast<std::size_t>(std::countr_zero(later != 0 ? later : bits));
}

// Takes the next fiber from the ready ones. The running warp continues while it can.
Fiber* BlockRunner::pick() {
  while (ready_blocks_ == 0 && finish_a_box()) {
  }
  if (running_warp_ == nullptr || running_warp_->ready == 0) {
    if (ready_blocks_ == 0) return nullptr;
    Block& block = blocks_[draw_bit(ready_blocks_, blocks_.size())];
    running_warp_ = &block.warps[draw_bit(block.ready_warps, num_warps_)];
  }
  Warp& warp = *running_warp_;
  const unsigned rotated = std::rotr(warp.ready, static_cast<int>(warp.rotation));
  const int offset =
      warp.is_descending ? 31 - std::countl_zero(rotated) : std::countr_zero(rotated);
  const unsigned lane = (static_cast<unsigned>(offset) + warp.rotation) & 31u;
  warp.ready &= ~(1u << lane);
  Block& block = *warp.block;
  if (warp.ready == 0) block.ready_warps &= ~(1u << warp.index);
  if (block.ready_warps == 0) ready_blocks_ &= ~(1u << block.rank);
  return warp.lanes[lane];
}

// The running fiber is ready or waits. Returns when it is picked again.
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
  if (random_.chance_in_power(3)) running_warp_ = nullptr;  // lets other warps overtake
}

int BlockRunner::block_rendezvous(Barrier barrier, int predicate, Where where) {
  Fiber& self = *current_;
  Block& block = *self.warp->block;
  self.waiting = {{nullptr, 0, where}, barrier, predicate, nullptr, 0};
  if (block.num_at_barrier == 0) block.first_at_barrier = &self;
  const Waiting& first = block.first_at_barrier->waiting;
  if (!is_same_place(first.call.where, where)) {
    fail(cudaErrorLaunchFailure, [&] {
      return "divergent barriers: " + described(name_of(barrier), where) + ", while thread " +
             to_text(block.first_at_barrier->thread_index) + " waits in " +
             described(name_of(first.barrier), first.call.where);
    });
  }
  ++block.num_at_barrier;
  if (block.num_at_barrier == block.num_alive) finish_barrier(block);
  give_way();
  return block.barrier_result;
}

void BlockRunner::finish_barrier(Block& block) {
  int count = 0;
  for (std::size_t i = 0; i < num_threads_; ++i) {
    Fiber& fiber = fibers_[block.first_fiber + i];
    if (fiber.has_exited) continue;
    count += fiber.waiting.predicate != 0 ? 1 : 0;
    make_ready(*fiber.warp, 1u << fiber.lane);
  }
  switch (block.first_at_barrier->waiting.barrier) {
    case Barrier::Plain: block.barrier_result = 0; break;
    case Barrier::Count: block.barrier_result = count; break;
    case Barrier::And:
      block.barrier_result = count == static_cast<int>(block.num_alive) ? 1 : 0;
      break;
    case Barrier::Or: block.barrier_result = count > 0 ? 1 : 0; break;
    case Barrier::Cluster:
    case Barrier::Phase: break;  // not barriers of the block
  }
  block.num_at_barrier = 0;
  running_warp_ = nullptr;
  for (std::size_t i = 0; i < num_warps_; ++i) shuffle_lanes(block.warps[i]);
}

void BlockRunner::cluster_rendezvous(Where where) {
  current_->waiting = {{nullptr, 0, where}, Barrier::Cluster, 0, nullptr, 0};
  ++num_at_cluster_barrier_;
  if (num_at_cluster_barrier_ == num_alive_) finish_cluster_barrier();
  give_way();
}

void BlockRunner::finish_cluster_barrier() {
  for (std::size_t i = 0; i < num_threads_ * blocks_.size(); ++i) {
    const Fiber& fiber = fibers_[i];
    if (!fiber.has_exited) make_ready(*fiber.warp, 1u << fiber.lane);
  }
  num_at_cluster_barrier_ = 0;
  running_warp_ = nullptr;
}

std::string BlockRunner::place(const Fiber* fiber) const {
  return "launch " + std::to_string(launch_->number) + " (" + kernel_type(launch_->type) +
         ", grid " + to_text(launch_->grid) + ", block " + to_text(launch_->block) + ", " +
         (launch_->cluster > 1 ? "clusters of " + std::to_string(launch_->cluster) + ", " : "") +
         std::to_string(launch_->shared_bytes) + " bytes of dynamic shared memory), block " +
         to_text(fiber->warp->block->index) + ", thread " + to_text(fiber->thread_index);
}

// Which threads wait, and for what: "32 threads wait in ..., the first is (0,0,0)".
std::string BlockRunner::waiting_threads() const {
  struct Group {
    int count = 0;
    const Fiber* first = nullptr;
  };
  std::map<std::string, Group> groups;
  for (std::size_t i = 0; i < num_threads_ * blocks_.size(); ++i) {
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
    if (blocks_.size() > 1) text += " of block " + to_text(group.first->warp->block->index);
  }
  return text;
}

void BlockRunner::block_on(const std::uint64_t* barrier, std::uint32_t parity, Where where) {
  current_->waiting = {{nullptr, 0, where}, Barrier::Phase, 0, barrier, parity};
  give_way();
}

void BlockRunner::wake(const std::uint64_t* barrier, std::uint32_t parity) {
  for (std::size_t i = 0; i < num_threads_ * blocks_.size(); ++i) {
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
