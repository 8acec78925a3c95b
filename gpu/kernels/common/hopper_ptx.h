// SPDX-License-Identifier: Apache-2.0
// Wraps instructions of Hopper (sm_90a) that CUDA C++ has no names for:
// - mbarriers, which count arrivals and bytes in shared memory;
// - copies of boxes of a tensor by the bulk copy engine;
// - products of a warpgroup (128 consecutive threads, the first a multiple of 128).
//
// The PTX ISA defines the semantics: mbarrier, cp.async.bulk.tensor, wgmma, setmaxnreg. Without a
// device compiler, the emulator (gpu/emulator) defines the same functions
// (gpu/emulator/emulated_hopper.h).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/kernels/common/ptx.h"

namespace metronome {

// Whether the current compilation target has these instructions.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool kHasWgmma = true;
#else
constexpr bool kHasWgmma = false;
#endif

// In shared memory, 8-byte aligned. A phase ends when it has all its arrivals and all expected
// bytes. Then the next phase begins.
using SharedBarrier = std::uint64_t;

// Describes a matrix in shared memory for wgmma. Rows have 128 bytes (64 elements of 16 bits) with
// the 128-byte swizzle: if a row begins at address a (a multiple of 128), its 16-byte chunk c lies
// at chunk c ^ (a / 128 % 8). Eight rows are 1,024 bytes, aligned to 1,024.
//
// In a k-major operand, a row is a row of A or a column of B, with 16 elements of k along it. The
// next eight rows lie `stride_bytes` further; `leading_bytes` is not read. In an operand that is
// not k-major, a row is one k. The next eight k lie `stride_bytes` further, and the next 64 rows of
// A or columns of B `leading_bytes` further. (CUTLASS, cute/arch/mma_sm90_desc.hpp.) `address` is
// the shared address of the first element.
__host__ __device__ __forceinline__ std::uint64_t matrix_descriptor(std::uint32_t address,
                                                                    std::uint32_t leading_bytes,
                                                                    std::uint32_t stride_bytes) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  const auto field = [](std::uint32_t bytes) -> std::uint64_t { return (bytes & 0x3ffffu) >> 4; };
  return field(address) | field(leading_bytes) << 16 | field(stride_bytes) << 32 | kSwizzle128;
}

// The supported widths of a product with both operands in shared memory.
constexpr bool has_product(int columns) {
  return columns == 32 || columns == 64 || columns == 80 || columns == 96 || columns == 128 ||
         columns == 144 || columns == 160 || columns == 192 || columns == 256;
}

}  // namespace metronome

#ifndef __CUDACC__
#include <emulated_hopper.h>
#else

namespace metronome {

// The dynamic shared memory, 1,024-byte aligned. The kernel must have no static shared memory.
__device__ __forceinline__ unsigned char* swizzled_shared_memory() {
  extern __shared__ __align__(1024) unsigned char swizzled_memory[];
  return swizzled_memory;
}

// Called by one thread. Before other threads use the barrier, that thread must call
// barrier_init_done(), and then all call __syncthreads().
__device__ __forceinline__ void barrier_init(SharedBarrier* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// Makes the thread's writes to shared memory visible to wgmma and the copy engine. A barrier, or
// the end of a phase, must come between the write and its use.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  fence_async_proxy();
}

__device__ __forceinline__ void barrier_arrive(SharedBarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier))
               : "memory");
}

// Adds `bytes` to the bytes that the current phase waits for.
__device__ __forceinline__ void barrier_expect(SharedBarrier* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

// barrier_expect() and barrier_arrive() in one.
__device__ __forceinline__ void barrier_arrive_expecting(SharedBarrier* barrier,
                                                         std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

// Waits for the end of the phase of this parity: 0 for the first phase, 1 for the second and so on.
// During the first phase, parity 1 returns at once.
__device__ __forceinline__ void barrier_wait(SharedBarrier* barrier, std::uint32_t parity) {
  std::uint32_t is_over = 0;
  while (is_over == 0) {
    asm volatile(
        "{\n"
        ".reg .pred is_over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 is_over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, is_over;\n"
        "}\n"
        : "=r"(is_over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

// Starts the copy of a box of a tensor, from element `column` of row `row` on. Elements outside the
// tensor are zeros. All bytes of the box count at the barrier. The target is 128-byte aligned
// (1,024 if wgmma reads it).
__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap& tensor,
                                         std::int32_t column, std::int32_t row,
                                         SharedBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];\n" ::"r"(shared_address(shared)),
      "l"(reinterpret_cast<std::uint64_t>(&tensor)), "r"(column), "r"(row),
      "r"(shared_address(barrier))
      : "memory");
}

// Prefetches a tensor map for later copies. The map must be a parameter of the kernel.
__device__ __forceinline__ void prefetch_tensor(const CUtensorMap& tensor) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(reinterpret_cast<std::uint64_t>(&tensor))
               : "memory");
}

// The rank of this CTA in its cluster; 0 without clusters. CTAs of a cluster (LaunchShape::cluster)
// run at the same time and can access each other's shared memory.
__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}

// Waits for all threads of the cluster that have not exited. All lanes of a warp must call it
// together. Barriers are ready for the whole cluster after it if barrier_init_done() came before.
// It makes no other writes visible. A CTA must not end before the others stop writing to its shared
// memory; this call can ensure that.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

// barrier_arrive() at the same barrier in the CTA of this rank. It reports that this CTA's products
// have read data that a copy may now overwrite. It orders nothing else between the CTAs: a
// cluster-wide release would wait for all of the thread's writes to memory.
__device__ __forceinline__ void barrier_arrive_at(SharedBarrier* barrier, std::uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// copy_box() to the same shared address in every CTA of the cluster whose rank is a bit of `ranks`.
// The bytes count at the same barrier of each CTA, even before that barrier expects them.
__device__ __forceinline__ void copy_box_to(std::uint16_t ranks, void* shared,
                                            const CUtensorMap& tensor, std::int32_t column,
                                            std::int32_t row, SharedBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;\n" ::"r"(shared_address(shared)),
      "l"(reinterpret_cast<std::uint64_t>(&tensor)), "r"(column), "r"(row),
      "r"(shared_address(barrier)), "h"(ranks)
      : "memory");
}

// Starts the copy of a box from shared memory, laid out as by copy_box(), to a tensor. Elements
// outside the tensor are not written. First the threads that wrote the box must call
// fence_async_proxy(), then a barrier. The next kernel sees the result like any other write.
__device__ __forceinline__ void store_box(const CUtensorMap& tensor, std::int32_t column,
                                          std::int32_t row, const void* shared) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n" ::"l"(
          reinterpret_cast<std::uint64_t>(&tensor)),
      "r"(column), "r"(row), "r"(shared_address(shared))
      : "memory");
}

// Closes a group of the thread's stores.
__device__ __forceinline__ void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

// Waits until all of the thread's groups of stores have read shared memory. Then that memory may be
// reused, or the CTA may end.
__device__ __forceinline__ void stores_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
}

// Sets the number of registers of a thread; all warps of a warpgroup must do the same. 24 to 256, a
// multiple of 8.
template <int kRegisters>
__device__ __forceinline__ void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// The compiler may move arithmetic on registers past an instruction that it does not know to write
// them. It does not move it past this statement.
template <int kCount>
__device__ __forceinline__ void pin(float (&registers)[kCount][4]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    asm volatile(""
                 : "+f"(registers[n][0]), "+f"(registers[n][1]), "+f"(registers[n][2]),
                   "+f"(registers[n][3])::"memory");
  }
}
template <int kCount>
__device__ __forceinline__ void pin(std::uint32_t (&registers)[kCount][4]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    asm volatile(""
                 : "+r"(registers[n][0]), "+r"(registers[n][1]), "+r"(registers[n][2]),
                   "+r"(registers[n][3])::"memory");
  }
}

// Orders the threads' accesses to these registers before the products that use them.
template <class... Registers>
__device__ __forceinline__ void wgmma_fence(Registers&... registers) {
  (pin(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

// Closes a group of products.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Waits until at most `kPending` of the latest groups are in flight. `registers` are those of the
// finished groups: before this call, they must be neither read nor written.
template <int kPending, class... Registers>
__device__ __forceinline__ void wgmma_wait(Registers&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
  (pin(registers), ...);
}

// Keeps a following wait after the arithmetic that computes `value`. ptxas moves waits before
// independent arithmetic; then that arithmetic would not overlap with the products that it waits
// for. `value` is never negative; a negative one would be stored.
__device__ __forceinline__ void settle(float value, void* shared) {
  asm volatile(
      "{\n"
      ".reg .pred is_negative;\n"
      "setp.lt.f32 is_negative, %0, 0f00000000;\n"
      "@is_negative st.volatile.shared.f32 [%1], %0;\n"
      "}\n" ::"f"(value),
      "r"(shared_address(shared))
      : "memory");
}

// ROW(n): registers of columns 8 n to 8 n + 7. ROWS_<count>: that many in sequence.
#define METRONOME_ROW(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define METRONOME_ROWS_2(n) METRONOME_ROW(n), METRONOME_ROW(n + 1)
#define METRONOME_ROWS_4(n) METRONOME_ROWS_2(n), METRONOME_ROWS_2(n + 2)
#define METRONOME_ROWS_8(n) METRONOME_ROWS_4(n), METRONOME_ROWS_4(n + 4)
#define METRONOME_ROWS_10(n) METRONOME_ROWS_8(n), METRONOME_ROWS_2(n + 8)
#define METRONOME_ROWS_12(n) METRONOME_ROWS_8(n), METRONOME_ROWS_4(n + 8)
#define METRONOME_ROWS_16(n) METRONOME_ROWS_8(n), METRONOME_ROWS_8(n + 8)
#define METRONOME_ROWS_18(n) METRONOME_ROWS_16(n), METRONOME_ROWS_2(n + 16)
#define METRONOME_ROWS_20(n) METRONOME_ROWS_16(n), METRONOME_ROWS_4(n + 16)
#define METRONOME_ROWS_24(n) METRONOME_ROWS_16(n), METRONOME_ROWS_8(n + 16)
#define METRONOME_ROWS_32(n) METRONOME_ROWS_16(n), METRONOME_ROWS_16(n + 16)
// Names of that many float operands.
#define METRONOME_LIST_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define METRONOME_LIST_32 \
  METRONOME_LIST_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define METRONOME_LIST_40 \
  METRONOME_LIST_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39"
#define METRONOME_LIST_48 \
  METRONOME_LIST_40       \
  ", %40, %41, %42, %43, %44, %45, %46, %47"
#define METRONOME_LIST_64 \
  METRONOME_LIST_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define METRONOME_LIST_72 \
  METRONOME_LIST_64       \
  ", %64, %65, %66, %67, %68, %69, %70, %71"
#define METRONOME_LIST_80 \
  METRONOME_LIST_72       \
  ", %72, %73, %74, %75, %76, %77, %78, %79"
#define METRONOME_LIST_96 \
  METRONOME_LIST_80       \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define METRONOME_LIST_128                                                               \
  METRONOME_LIST_96                                                                      \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109"     \
  ", %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123" \
  ", %124, %125, %126, %127"

// d = a * b, plus the old d if `accumulates` (operand `flag`).
#define METRONOME_PRODUCT(columns, list, rows, a_matrix, b_matrix, flag)              \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " flag                         \
               ", 0;\n"                                                               \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" list \
               "}, " a_matrix ", " b_matrix ", adds, 1, 1, 0, 0;\n}\n"                \
               : rows                                                                 \
               : "l"(a), "l"(b), "r"(static_cast<std::uint32_t>(accumulates)))
// d += weights * values.
#define METRONOME_PRODUCT_OF_REGISTERS(columns, list, rows, a_registers, b_matrix)             \
  asm volatile(                                                                                \
      "{\n.reg .pred adds;\nsetp.eq.b32 adds, 0, 0;\n"                                         \
      "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" list "}, " a_registers \
      ", " b_matrix ", adds, 1, 1, 1;\n}\n"                                                    \
      : rows                                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// d = a * b by a warpgroup, plus the old d if `accumulates`. a is 64 x 16 and b 16 x kColumns, both
// k-major in shared memory (matrix_descriptor). d[n] is the thread's part of the eight columns from
// 8 n on. The rows are as in mma.m16n8k16, 16 rows per warp.
template <int kColumns>
__device__ __forceinline__ void wgmma(float (&d)[kColumns / 8][4], std::uint64_t a, std::uint64_t b,
                                      bool accumulates) {
  static_assert(has_product(kColumns));
  if constexpr (kColumns == 32) {
    METRONOME_PRODUCT("32", METRONOME_LIST_16, METRONOME_ROWS_4(0), "%16", "%17", "%18");
  } else if constexpr (kColumns == 64) {
    METRONOME_PRODUCT("64", METRONOME_LIST_32, METRONOME_ROWS_8(0), "%32", "%33", "%34");
  } else if constexpr (kColumns == 80) {
    METRONOME_PRODUCT("80", METRONOME_LIST_40, METRONOME_ROWS_10(0), "%40", "%41", "%42");
  } else if constexpr (kColumns == 96) {
    METRONOME_PRODUCT("96", METRONOME_LIST_48, METRONOME_ROWS_12(0), "%48", "%49", "%50");
  } else if constexpr (kColumns == 128) {
    METRONOME_PRODUCT("128", METRONOME_LIST_64, METRONOME_ROWS_16(0), "%64", "%65", "%66");
  } else if constexpr (kColumns == 144) {
    METRONOME_PRODUCT("144", METRONOME_LIST_72, METRONOME_ROWS_18(0), "%72", "%73", "%74");
  } else if constexpr (kColumns == 160) {
    METRONOME_PRODUCT("160", METRONOME_LIST_80, METRONOME_ROWS_20(0), "%80", "%81", "%82");
  } else if constexpr (kColumns == 192) {
    METRONOME_PRODUCT("192", METRONOME_LIST_96, METRONOME_ROWS_24(0), "%96", "%97", "%98");
  } else {
    METRONOME_PRODUCT("256", METRONOME_LIST_128, METRONOME_ROWS_32(0), "%128", "%129", "%130");
  }
}

// d += a * b. a is in registers as in mma.m16n8k16; b is in shared memory and not k-major.
template <int kColumns>
__device__ __forceinline__ void wgmma(float (&d)[kColumns / 8][4], const std::uint32_t (&a)[4],
                                      std::uint64_t b) {
  static_assert(kColumns == 64 || kColumns == 128 || kColumns == 256);
  if constexpr (kColumns == 64) {
    METRONOME_PRODUCT_OF_REGISTERS("64", METRONOME_LIST_32, METRONOME_ROWS_8(0),
                                   "{%32, %33, %34, %35}", "%36");
  } else if constexpr (kColumns == 128) {
    METRONOME_PRODUCT_OF_REGISTERS("128", METRONOME_LIST_64, METRONOME_ROWS_16(0),
                                   "{%64, %65, %66, %67}", "%68");
  } else {
    METRONOME_PRODUCT_OF_REGISTERS("256", METRONOME_LIST_128, METRONOME_ROWS_32(0),
                                   "{%128, %129, %130, %131}", "%132");
  }
}

#undef METRONOME_ROW
#undef METRONOME_ROWS_2
#undef METRONOME_ROWS_4
#undef METRONOME_ROWS_8
#undef METRONOME_ROWS_10
#undef METRONOME_ROWS_12
#undef METRONOME_ROWS_16
#undef METRONOME_ROWS_18
#undef METRONOME_ROWS_20
#undef METRONOME_ROWS_24
#undef METRONOME_ROWS_32
#undef METRONOME_LIST_16
#undef METRONOME_LIST_32
#undef METRONOME_LIST_40
#undef METRONOME_LIST_48
#undef METRONOME_LIST_64
#undef METRONOME_LIST_72
#undef METRONOME_LIST_80
#undef METRONOME_LIST_96
#undef METRONOME_LIST_128
#undef METRONOME_PRODUCT
#undef METRONOME_PRODUCT_OF_REGISTERS

}  // namespace metronome

#endif
