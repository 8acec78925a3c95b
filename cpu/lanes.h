// Vectors of floats with the width of the instruction set that this file is compiled for, based on
// the vector extensions of GCC and clang. Each instruction set has its own namespace, and the code
// calls no inline function of the standard library. The linker would merge the copies of such a
// function and could keep one that older processors cannot run.
#pragma once

#include <cstdint>

#include "cpu/kernels.h"

#define METRONOME_INLINE [[gnu::always_inline]] static inline
// For loops over an array of vectors: unrolling keeps the array in registers.
#if defined(__clang__)
#define METRONOME_UNROLL _Pragma("unroll")
#else
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

METRONOME_INLINE Words load_words(const std::uint16_t* from) {
  Words value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
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
