// SPDX-License-Identifier: Apache-2.0
// The functions of gpu/kernels/common/ptx.h in the emulator.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "gpu/emulator/device_code.h"

namespace metronome::emulator {

// Fragments in the PTX ISA's layout for mma.m16n8k16 with .bf16.
struct MmaArgument {
  float* d;                // [4]
  const std::uint32_t* a;  // [4]
  const std::uint32_t* b;  // [2]
};
extern const WarpOperation kMma;

struct LoadMatrixArgument {
  std::uint32_t* registers;  // [4]
  const void* row;
};
extern const WarpOperation kLoadMatrix;
extern const WarpOperation kLoadMatrixTransposed;

extern constinit thread_local unsigned char* dynamic_shared;

// Each copy happens at once or in the last wait that covers it, at random by the seed.
void async_copy(void* shared, const void* global, bool is_valid, Where where);
void async_commit();
void async_wait(int num_pending_groups);

// Records that the thread has waited for earlier kernels.
void join_launch();

}  // namespace metronome::emulator

namespace metronome {

// Has exactly as many bytes as the launch requests; null if it requests none.
inline unsigned char* dynamic_shared_memory() { return emulator::dynamic_shared; }

inline void wait_for_kernels() { emulator::join_launch(); }
inline void let_next_kernel_start() {}
inline void join_kernels() { wait_for_kernels(); }

// Each element of d is one float sum: d first, then the products by ascending k, one rounding per
// addition (the products of bfloat16 are exact in float).
inline void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                         emulator::Where where = emulator::Where::current()) {
  emulator::MmaArgument argument{d, a, b};
  emulator::warp_rendezvous(emulator::kMma, 0xffffffffu, &argument, where);
}

inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row,
                        emulator::Where where = emulator::Where::current()) {
  emulator::LoadMatrixArgument argument{r, row};
  emulator::warp_rendezvous(emulator::kLoadMatrix, 0xffffffffu, &argument, where);
}

inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row,
                              emulator::Where where = emulator::Where::current()) {
  emulator::LoadMatrixArgument argument{r, row};
  emulator::warp_rendezvous(emulator::kLoadMatrixTransposed, 0xffffffffu, &argument, where);
}

inline void cp_async_16(void* shared, const void* global, bool is_valid,
                        emulator::Where where = emulator::Where::current()) {
  emulator::async_copy(shared, global, is_valid, where);
}

// Hardware may ignore this hint. Reads the byte, so that AddressSanitizer checks the address.
inline void prefetch_l2(const void* global) {
  [[maybe_unused]] const volatile unsigned char seen = *static_cast<const unsigned char*>(global);
}

inline void cp_async_commit() { emulator::async_commit(); }

template <int kPending>
void cp_async_wait() {
  emulator::async_wait(kPending);
}

// ex2.approx.ftz: subnormal arguments count as zero, subnormal results are zero.
inline float exp2_fast(float x) {
  const float y = exp2f(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
}

}  // namespace metronome
