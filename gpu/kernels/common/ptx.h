// SPDX-License-Identifier: Apache-2.0
// Wraps instructions that CUDA C++ has no names for. Without a device compiler, the emulator
// (gpu/emulator) defines the same functions (gpu/emulator/emulated_ptx.h).
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace metronome {

constexpr float kLog2OfE = 1.4426950408889634f;  // 2^(x * kLog2OfE) is e^x

}  // namespace metronome

#ifndef __CUDACC__
#include <emulated_ptx.h>
#else

namespace metronome {

// The dynamic shared memory of the kernel, 128-byte aligned.
__device__ __forceinline__ unsigned char* dynamic_shared_memory() {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  return shared_memory;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// d += a * b by a warp: a is 16 x 16 row-major, b 16 x 8 column-major, d 16 x 8. The PTX ISA
// defines the fragment layouts (mma.m16n8k16 with .bf16).
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4],
                                             const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane i gives the address of row
// i % 8 of matrix i / 8 (16 bytes, aligned). Register j of lane i receives elements (i % 4) * 2 and
// + 1 of row i / 4 of matrix j.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// Loads as ldmatrix_x4() does, and transposes each matrix.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// Copies 16 bytes from global to shared memory asynchronously. If `is_valid` is false, writes zeros
// and does not access global memory. Both addresses are 16-byte aligned.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool is_valid) {
  asm volatile(
      "{\n"
      ".reg .pred ignores_source;\n"
      "setp.eq.u32 ignores_source, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, ignores_source;\n"
      "}\n" ::"r"(shared_address(shared)),
      "l"(global), "r"(static_cast<std::uint32_t>(is_valid))
      : "memory");
}

// Prefetches the bytes around an address from memory into the L2 cache.
__device__ __forceinline__ void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(global));
}

// Closes a group of the thread's copies.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Waits until at most `kPending` of the thread's latest groups are in flight. Other threads see the
// copied bytes after a barrier.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Waits until all earlier kernels have ended and their results are visible. Every thread of every
// kernel calls it, so that any kernel may be launched early (gpu/kernels/launch.h). Before the
// call, a thread may only read weights, which no kernel writes, and must not write anything. It has
// no effect in a kernel that was not launched early. Requires that all earlier kernels called it,
// too, or were not launched early: then the kernels before them have ended as well.
__device__ __forceinline__ void wait_for_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// Lets the next kernel start once all CTAs have called this or ended.
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Does both. The first statement of a kernel that has no work before the wait and no reason to keep
// the SMs to itself.
__device__ __forceinline__ void join_kernels() {
  wait_for_kernels();
  let_next_kernel_start();
}

// 2^x, to about two units in the last place of a float; 0 for -infinity.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace metronome

#endif
