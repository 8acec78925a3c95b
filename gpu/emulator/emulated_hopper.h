// SPDX-License-Identifier: Apache-2.0
// The functions of gpu/kernels/common/hopper_ptx.h in the emulator.
//
// Copies and products complete at random moments that hardware allows: at their start, when a
// thread waits, or at the last moment that the kernel's waits permit. So a kernel that reads too
// early or writes too soon gets wrong results. The emulator does not detect a missing
// fence_async_proxy() or barrier_init_done(), or reads of registers before wgmma_wait().
//
// Bytes may reach a barrier before it expects them, because another block may send them. It is a
// failure if they are still unexpected when the phase has all its arrivals, or when the block ends.
#pragma once

#include <cstdint>

#include "gpu/emulator/cuda.h"
#include "gpu/emulator/device_code.h"
#include "gpu/emulator/emulated_ptx.h"

namespace metronome::emulator {

void init_barrier(std::uint64_t* barrier, std::uint32_t arrivals, Where where);
void arrive_at(std::uint64_t* barrier, Where where);
void expect_bytes(std::uint64_t* barrier, std::uint32_t bytes, Where where);
void wait_for_phase(std::uint64_t* barrier, std::uint32_t parity, Where where);
void arrive_at_block(std::uint64_t* barrier, std::uint32_t rank, Where where);
void start_box(void* shared, const CUtensorMap& tensor, std::int32_t column, std::int32_t row,
               std::uint64_t* barrier, Where where);
void start_boxes(std::uint32_t ranks, void* shared, const CUtensorMap& tensor, std::int32_t column,
                 std::int32_t row, std::uint64_t* barrier, Where where);
std::uint32_t rank_in_cluster();
void sync_cluster(Where where);

// A store completes at its start or when its thread waits. It is a failure if the thread ends
// without a wait for it.
void start_store(const void* shared, const CUtensorMap& tensor, std::int32_t column,
                 std::int32_t row, Where where);
void commit_stores();
void finish_stores();

// A lane's part of a product of its warpgroup.
struct ProductArgument {
  float* d = nullptr;                // [columns / 2]
  const std::uint32_t* a = nullptr;  // [4]; null: in shared memory
  std::uint64_t a_matrix = 0;
  std::uint64_t b_matrix = 0;
  int columns = 0;
  bool is_b_k_major = false;
  bool accumulates = true;
};
extern const WarpOperation kProduct;
extern const WarpOperation kProductFence;
extern const WarpOperation kProductCommit;
extern const WarpOperation kProductWait;  // the argument is an int
extern const WarpOperation kRegisters;

}  // namespace metronome::emulator

namespace metronome {

// Returns an offset in the block's dynamic shared memory, which is 1,024-byte aligned.
inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(static_cast<const unsigned char*>(pointer) -
                                    emulator::dynamic_shared);
}

inline unsigned char* swizzled_shared_memory() { return emulator::dynamic_shared; }

inline void fence_async_proxy() {}
inline void barrier_init_done() {}

inline void barrier_init(SharedBarrier* barrier, std::uint32_t arrivals,
                         emulator::Where where = emulator::Where::current()) {
  emulator::init_barrier(barrier, arrivals, where);
}

inline void barrier_arrive(SharedBarrier* barrier,
                           emulator::Where where = emulator::Where::current()) {
  emulator::arrive_at(barrier, where);
}

inline void prefetch_tensor(const CUtensorMap&) {}

inline void barrier_expect(SharedBarrier* barrier, std::uint32_t bytes,
                           emulator::Where where = emulator::Where::current()) {
  emulator::expect_bytes(barrier, bytes, where);
}

inline void barrier_arrive_expecting(SharedBarrier* barrier, std::uint32_t bytes,
                                     emulator::Where where = emulator::Where::current()) {
  emulator::expect_bytes(barrier, bytes, where);
  emulator::arrive_at(barrier, where);
}

inline void barrier_wait(SharedBarrier* barrier, std::uint32_t parity,
                         emulator::Where where = emulator::Where::current()) {
  emulator::wait_for_phase(barrier, parity, where);
}

inline void copy_box(void* shared, const CUtensorMap& tensor, std::int32_t column, std::int32_t row,
                     SharedBarrier* barrier, emulator::Where where = emulator::Where::current()) {
  emulator::start_box(shared, tensor, column, row, barrier, where);
}

inline void store_box(const CUtensorMap& tensor, std::int32_t column, std::int32_t row,
                      const void* shared, emulator::Where where = emulator::Where::current()) {
  emulator::start_store(shared, tensor, column, row, where);
}
inline void stores_commit() { emulator::commit_stores(); }
inline void stores_wait_read() { emulator::finish_stores(); }

inline std::uint32_t cluster_rank() { return emulator::rank_in_cluster(); }

// All existing lanes of a warp must call it together, as `.aligned` requires. It is a failure if a
// lane has exited and another one calls it. Whole warps may have exited.
inline void cluster_sync(emulator::Where where = emulator::Where::current()) {
  emulator::sync_cluster(where);
}

// Barriers and boxes of other blocks must be in dynamic shared memory. They are accessible while
// their block has a thread that has not exited.
inline void barrier_arrive_at(SharedBarrier* barrier, std::uint32_t rank,
                              emulator::Where where = emulator::Where::current()) {
  emulator::arrive_at_block(barrier, rank, where);
}

// Each box arrives at its own time.
inline void copy_box_to(std::uint16_t ranks, void* shared, const CUtensorMap& tensor,
                        std::int32_t column, std::int32_t row, SharedBarrier* barrier,
                        emulator::Where where = emulator::Where::current()) {
  emulator::start_boxes(ranks, shared, tensor, column, row, barrier, where);
}

template <int kRegisters>
void decrease_registers(emulator::Where where = emulator::Where::current()) {
  static_assert(24 <= kRegisters && kRegisters <= 256 && kRegisters % 8 == 0);
  emulator::warp_rendezvous(emulator::kRegisters, 0xffffffffu, nullptr, where);
}
template <int kRegisters>
void increase_registers(emulator::Where where = emulator::Where::current()) {
  static_assert(24 <= kRegisters && kRegisters <= 256 && kRegisters % 8 == 0);
  emulator::warp_rendezvous(emulator::kRegisters, 0xffffffffu, nullptr, where);
}

template <class... Registers>
void wgmma_fence(Registers&...) {
  emulator::warp_rendezvous(emulator::kProductFence, 0xffffffffu, nullptr, {});
}

inline void wgmma_commit() {
  emulator::warp_rendezvous(emulator::kProductCommit, 0xffffffffu, nullptr, {});
}

template <int kPending, class... Registers>
void wgmma_wait(Registers&...) {
  int pending = kPending;
  emulator::warp_rendezvous(emulator::kProductWait, 0xffffffffu, &pending, {});
}

inline void settle(float, void*) {}

// Sums as in the emulator's mma_m16n8k16: d first, then the products by ascending k.
template <int kColumns>
void wgmma(float (&d)[kColumns / 8][4], std::uint64_t a, std::uint64_t b, bool accumulates,
           emulator::Where where = emulator::Where::current()) {
  static_assert(has_product(kColumns));
  emulator::ProductArgument argument{&d[0][0], nullptr, a, b, kColumns, true, accumulates};
  emulator::warp_rendezvous(emulator::kProduct, 0xffffffffu, &argument, where);
}

template <int kColumns>
void wgmma(float (&d)[kColumns / 8][4], const std::uint32_t (&a)[4], std::uint64_t b,
           emulator::Where where = emulator::Where::current()) {
  static_assert(kColumns == 64 || kColumns == 128 || kColumns == 256);
  emulator::ProductArgument argument{&d[0][0], a, 0, b, kColumns, false, true};
  emulator::warp_rendezvous(emulator::kProduct, 0xffffffffu, &argument, where);
}

}  // namespace metronome
