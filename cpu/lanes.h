// Vectors of floats as wide as the instruction set this file is compiled for, by the vector
// extensions of GCC and clang. Everything lies in a namespace of its own for every instruction set,
// and calls no inline function of the standard library: the linker would merge its copies, and
// could keep the one that older processors cannot run.
#pragma once

#include <cstdint>

#include "cpu/kernels.h"

#define METRONOME_INLINE [[gnu::always_inline]] static inline
// Before a loop over an array of vectors: unrolled, the array becomes registers.
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

// A sum or maximum over an array runs in 16 strided lanes: lane i takes elements i, i + 16, ...
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

// The first `count` < kWidth floats, zeros behind them.
METRONOME_INLINE Floats load_some(const float* from, std::int64_t count) {
  Floats value = {};
  __builtin_memcpy(&value, from, static_cast<std::size_t>(count) * sizeof(float));
  return value;
}

METRONOME_INLINE void store_some(float* to, const Floats& value, std::int64_t count) {
  __builtin_memcpy(to, &value, static_cast<std::size_t>(count) * sizeof(float));
}

// x - 0 is x to the bit, which 0 + x is not: it loses the sign of -0.
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

// e^x within 2 units in the last place. Results that a normal float cannot hold are 0 and
// infinity; a NaN stays one.
METRONOME_INLINE Floats exp(const Floats& x) {
  // x = n * log(2) + r with |r| <= log(2) / 2. Adding 1.5 * 2^23 rounds to an integer and leaves
  // it in the low bits; log(2) in two parts makes r exact but for one rounding.
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
  // n goes straight into the exponent, which the two selections below keep in range.
  const Floats result = (Floats)((Words)power + ((Words)shifted << 23));
  const Floats bounded = x < -87.3f ? Floats{} : result;
  const Floats extended = x > 88.72283f ? broadcast(__builtin_inff()) : bounded;
  return x == x ? extended : x;
}

}  // namespace metronome::METRONOME_KERNELS
