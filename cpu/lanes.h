// SPDX-License-Identifier: Apache-2.0
// Vectors of floats with the width of the instruction set that this file is compiled for, based on
// the vector extensions of GCC and clang. Each instruction set has its own namespace, and the code
// calls no inline function of the standard library. The linker would merge the copies of such a
// function and could keep one that older processors cannot run.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "cpu/kernels.h"

// METRONOME_INLINED is for lambdas, behind the parameters. METRONOME_UNROLL is for loops over an
// array of vectors: unrolling keeps the array in registers. A sanitizer's checks of each access
// make clang spend a quarter of an hour on a file of code expanded like this.
#if defined(METRONOME_SANITIZED)
#define METRONOME_INLINE [[maybe_unused]] static
#define METRONOME_INLINED
#define METRONOME_UNROLL
#elif defined(__clang__)
#define METRONOME_INLINE [[gnu::always_inline]] static inline
#define METRONOME_INLINED __attribute__((always_inline))
#define METRONOME_UNROLL _Pragma("unroll")
#else
#define METRONOME_INLINE [[gnu::always_inline]] static inline
#define METRONOME_INLINED __attribute__((always_inline))
#define METRONOME_UNROLL _Pragma("GCC unroll 16")
#endif

namespace metronome::METRONOME_KERNELS {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Floats __attribute__((vector_size(kWidth * 4)));
typedef std::uint32_t Words __attribute__((vector_size(kWidth * 4)));
typedef std::int32_t Integers __attribute__((vector_size(kWidth * 4)));
typedef double Doubles __attribute__((vector_size(kWidth * 8)));
typedef std::int64_t Longs __attribute__((vector_size(kWidth * 8)));

// Sums and maxima over an array use 16 strided lanes: lane i takes elements i, i + 16, ...
constexpr int kParts = static_cast<int>(kLanes) / kWidth;

template <class T>
METRONOME_INLINE T smaller(T a, T b) {
  return b < a ? b : a;
}

METRONOME_INLINE Floats load(const float* from) {
  Floats value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

template <class T>
METRONOME_INLINE Words load_words(const T* from) {
  Words value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

// Of integers below 2^31.
METRONOME_INLINE Floats floats_of(const Words& integers) {
  return __builtin_convertvector((Integers)integers, Floats);
}

METRONOME_INLINE void store(float* to, const Floats& value) {
  __builtin_memcpy(to, &value, sizeof(value));
}

// The first `count` < kWidth floats, followed by zeros.
METRONOME_INLINE Floats load_some(const float* from, std::int64_t count) {
  Floats value = {};
  __builtin_memcpy(&value, from, static_cast<std::size_t>(count) * sizeof(float));
  return value;
}

METRONOME_INLINE void store_some(float* to, const Floats& value, std::int64_t count) {
  __builtin_memcpy(to, &value, static_cast<std::size_t>(count) * sizeof(float));
}

// x - 0 equals x to the bit. 0 + x does not: it loses the sign of -0.
METRONOME_INLINE Floats broadcast(float x) { return x - Floats{}; }

// a * b + c, rounded once, without the instruction for it. The product of floats is exact in
// double. Where the sum is not, it is rounded to odd: of the two neighbours, to the one with an odd
// last bit. Rounding that to float gives the nearest float to the exact sum, as double has more
// than two further bits (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums",
// 2008).
[[gnu::noinline, maybe_unused]] static Floats multiply_add_in_double(const Floats& a,
                                                                     const Floats& b,
                                                                     const Floats& c) {
  const Doubles product = __builtin_convertvector(a, Doubles) * __builtin_convertvector(b, Doubles);
  const Doubles addend = __builtin_convertvector(c, Doubles);
  const Doubles sum = product + addend;
  // The error of the sum, exactly (Knuth). NaN if the sum is infinite or NaN.
  const Doubles part = sum - product;
  const Doubles error = (product - (sum - part)) + (addend - part);
  const Longs bits = (Longs)sum;
  const Longs is_inexact = (Longs)((error > 0.0) | (error < 0.0));
  const Longs is_even = (bits & 1) - 1;
  const Longs is_away = (Longs)(error > 0.0) ^ (Longs)(sum > 0.0);  // 0: the sum was rounded to 0
  const Longs step = (~is_away & 2) - 1;
  const Doubles odd = (Doubles)(bits + (step & is_inexact & is_even));
  return __builtin_convertvector(odd, Floats);
}

// a * b + c, rounded once, on every instruction set.
METRONOME_INLINE Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
#if defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__FP_FAST_FMAF)
  Floats result;
  METRONOME_UNROLL
  for (int i = 0; i < kWidth; ++i) result[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return result;
#else
  return multiply_add_in_double(a, b, c);
#endif
}

METRONOME_INLINE Floats larger(const Floats& a, const Floats& b) { return a > b ? a : b; }

METRONOME_INLINE float sum_of_lanes(const Floats (&parts)[kParts]) {
  float lanes[kLanes];
  __builtin_memcpy(lanes, parts, sizeof(lanes));
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

METRONOME_INLINE float largest_lane(const Floats (&parts)[kParts]) {
  float lanes[kLanes];
  __builtin_memcpy(lanes, parts, sizeof(lanes));
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      lanes[i] = lanes[i + half] > lanes[i] ? lanes[i + half] : lanes[i];
    }
  }
  return lanes[0];
}

// e^x within 2 units in the last place. Results outside the range of normal floats become 0 or
// infinity; NaN stays NaN.
METRONOME_INLINE Floats exp(const Floats& x) {
  // x = n * log(2) + r with |r| <= log(2) / 2. Adding 1.5 * 2^23 rounds to an integer, which is
  // then in the low bits. log(2) in two parts makes r exact except for one rounding.
  const Floats rounder = broadcast(12582912.0f);
  const Floats shifted = x * 1.4426950408889634f + rounder;
  const Floats n = shifted - rounder;
  const Floats r = (x - n * 0.693359375f) + n * 2.1219444e-4f;
  // e^r = 1 + r + r^2 q(r): q is the minimax polynomial of the relative error, 4e-9.
  Floats q = r * 1.381456e-3f + 8.3687352e-3f;
  q = q * r + 4.1668389e-2f;
  q = q * r + 1.6666521e-1f;
  q = q * r + 4.9999994e-1f;
  const Floats power = (q * (r * r) + r) + 1.0f;
  // Adds n directly to the exponent. The two selections below handle results out of range.
  const Floats result = (Floats)((Words)power + ((Words)shifted << 23));
  const Floats bounded = x < -87.3f ? Floats{} : result;
  const Floats extended = x > 88.72283f ? broadcast(__builtin_inff()) : bounded;
  return x == x ? extended : x;
}

}  // namespace metronome::METRONOME_KERNELS
