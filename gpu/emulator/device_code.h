// SPDX-License-Identifier: Apache-2.0
// The language of device code: qualifiers, indices, collectives, atomics and arithmetic.
//
// A CUDA thread is a fiber. It runs until a collective switches to another one. Collectives record
// their call sites, for messages, and to check that all threads call the same one.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gpu/emulator/vector_types.h"

#define __global__
#define __device__
#define __host__
// All blocks share one instance. Blocks of a cluster run at the same time and would overwrite each
// other's data. So kernels launched in clusters must use dynamic shared memory only.
#define __shared__ static thread_local
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__

// Indices of the running fiber.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
constexpr int warpSize = 32;

namespace metronome::emulator {

// The call site of a collective. std::source_location needs clang 15.
struct Where {
  const char* file = "";
  int line = 0;

  static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

constexpr unsigned kWarpSize = 32;

// A collective of a warp. run() gets the argument of every lane; null for lanes outside the mask.
struct WarpOperation {
  const char* name;
  bool is_aligned;  // all lanes must execute the same instruction of the program
  void (*run)(void* const* lanes, Where where);
};

// Waits until all lanes of the mask have arrived. Returns after the operation has run.
void warp_rendezvous(const WarpOperation& operation, unsigned mask, void* argument, Where where);

enum class Barrier : std::uint8_t { Plain, Count, And, Or, Cluster, Phase };

// Waits for all threads of the block that have not exited; combines their predicates.
int block_rendezvous(Barrier barrier, int predicate, Where where);

enum class ShuffleKind : std::uint8_t { Index, Up, Down, Xor };

struct ShuffleArgument {
  std::uint64_t value = 0;
  unsigned operand = 0;
  unsigned width = 0;  // of a segment: a power of two
  ShuffleKind kind = ShuffleKind::Index;
};
extern const WarpOperation kShuffle;

struct BallotArgument {
  bool predicate = false;
  unsigned result = 0;
};
extern const WarpOperation kBallot;
extern const WarpOperation kSyncWarp;

template <class T>
T shuffle(ShuffleKind kind, unsigned mask, T value, unsigned operand, int width, Where where) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  ShuffleArgument argument{0, operand, static_cast<unsigned>(width), kind};
  std::memcpy(&argument.value, &value, sizeof(T));
  warp_rendezvous(kShuffle, mask, &argument, where);
  std::memcpy(&value, &argument.value, sizeof(T));
  return value;
}

inline unsigned ballot(unsigned mask, int predicate, Where where) {
  BallotArgument argument{predicate != 0};
  warp_rendezvous(kBallot, mask, &argument, where);
  return argument.result;
}

inline float fast_exp(float x) { return expf(x); }
inline float fast_log(float x) { return logf(x); }

}  // namespace metronome::emulator

// Collectives.

using EmulatedWhere = metronome::emulator::Where;

inline void __syncthreads(EmulatedWhere where = EmulatedWhere::current()) {
  using namespace metronome::emulator;
  block_rendezvous(Barrier::Plain, 0, where);
}
inline int __syncthreads_count(int predicate, EmulatedWhere where = EmulatedWhere::current()) {
  using namespace metronome::emulator;
  return block_rendezvous(Barrier::Count, predicate, where);
}
inline int __syncthreads_and(int predicate, EmulatedWhere where = EmulatedWhere::current()) {
  using namespace metronome::emulator;
  return block_rendezvous(Barrier::And, predicate, where);
}
inline int __syncthreads_or(int predicate, EmulatedWhere where = EmulatedWhere::current()) {
  using namespace metronome::emulator;
  return block_rendezvous(Barrier::Or, predicate, where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       EmulatedWhere where = EmulatedWhere::current()) {
  using namespace metronome::emulator;
  warp_rendezvous(kSyncWarp, mask, nullptr, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize,
              EmulatedWhere where = EmulatedWhere::current()) {
  using namespace metronome::emulator;
  return shuffle(ShuffleKind::Index, mask, value, static_cast<unsigned>(lane), width, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 EmulatedWhere where = EmulatedWhere::current()) {
  using namespace metronome::emulator;
  return shuffle(ShuffleKind::Up, mask, value, delta, width, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   EmulatedWhere where = EmulatedWhere::current()) {
  using namespace metronome::emulator;
  return shuffle(ShuffleKind::Down, mask, value, delta, width, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  EmulatedWhere where = EmulatedWhere::current()) {
  using namespace metronome::emulator;
  return shuffle(ShuffleKind::Xor, mask, value, static_cast<unsigned>(lane_mask), width, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              EmulatedWhere where = EmulatedWhere::current()) {
  return metronome::emulator::ballot(mask, predicate, where);
}
inline int __any_sync(unsigned mask, int predicate,
                      EmulatedWhere where = EmulatedWhere::current()) {
  return metronome::emulator::ballot(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      EmulatedWhere where = EmulatedWhere::current()) {
  return metronome::emulator::ballot(mask, predicate == 0, where) == 0;
}

// Fibers share one host thread, so memory is always in order and atomics are never interrupted.

[[noreturn]] void __trap();
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

#define EMULATED_ATOMICS(type)                                        \
  inline type atomicAdd(type* address, type value) {                  \
    const type old = *address;                                        \
    *address = static_cast<type>(old + value);                        \
    return old;                                                       \
  }                                                                   \
  inline type atomicMax(type* address, type value) {                  \
    const type old = *address;                                        \
    *address = std::max(old, value);                                  \
    return old;                                                       \
  }                                                                   \
  inline type atomicMin(type* address, type value) {                  \
    const type old = *address;                                        \
    *address = std::min(old, value);                                  \
    return old;                                                       \
  }                                                                   \
  inline type atomicOr(type* address, type value) {                   \
    const type old = *address;                                        \
    *address = old | value;                                           \
    return old;                                                       \
  }                                                                   \
  inline type atomicAnd(type* address, type value) {                  \
    const type old = *address;                                        \
    *address = old & value;                                           \
    return old;                                                       \
  }                                                                   \
  inline type atomicExch(type* address, type value) {                 \
    const type old = *address;                                        \
    *address = value;                                                 \
    return old;                                                       \
  }                                                                   \
  inline type atomicCAS(type* address, type expected, type desired) { \
    const type old = *address;                                        \
    if (old == expected) *address = desired;                          \
    return old;                                                       \
  }
EMULATED_ATOMICS(int)
EMULATED_ATOMICS(unsigned)
EMULATED_ATOMICS(unsigned long long)
#undef EMULATED_ATOMICS

inline float atomicAdd(float* address, float value) {
  const float old = *address;
  *address = old + value;
  return old;
}
inline float atomicExch(float* address, float value) {
  const float old = *address;
  *address = value;
  return old;
}

template <class T>
T __ldg(const T* address) {
  return *address;
}

// Arithmetic. glibc declares its own __expf and __logf.

#define __expf(x) (::metronome::emulator::fast_exp(x))
#define __logf(x) (::metronome::emulator::fast_log(x))

inline float rsqrtf(float x) { return static_cast<float>(1 / std::sqrt(static_cast<double>(x))); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

#define EMULATED_MIN_MAX(type)                                 \
  constexpr type min(type x, type y) { return y < x ? y : x; } \
  constexpr type max(type x, type y) { return x < y ? y : x; }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
#undef EMULATED_MIN_MAX
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= ((x >> i) & 1u) << (31 - i);
  return result;
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(x) * y) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(x) * y) >> 64);
}
