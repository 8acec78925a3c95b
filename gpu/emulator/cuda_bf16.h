// SPDX-License-Identifier: Apache-2.0
// The part of bfloat16 that the kernels use. All conversions are explicit.
#pragma once

#include <bit>
#include <cstdint>

#include "gpu/emulator/vector_types.h"

// The member is public so that kernels may copy its bytes.
struct __nv_bfloat16 {
  unsigned short emulated_bits;
};

constexpr unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.emulated_bits; }
constexpr __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }

// To nearest, ties to even. Every NaN becomes 0x7fff, as on a GPU.
constexpr __nv_bfloat16 __float2bfloat16_rn(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return __ushort_as_bfloat16(0x7fff);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return __ushort_as_bfloat16(static_cast<unsigned short>(rounded >> 16));
}
constexpr __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }

constexpr float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(__bfloat16_as_ushort(x)) << 16);
}

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

constexpr __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
constexpr __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
constexpr __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
constexpr __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
constexpr __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
constexpr float __low2float(__nv_bfloat162 v) { return __bfloat162float(v.x); }
constexpr float __high2float(__nv_bfloat162 v) { return __bfloat162float(v.y); }
constexpr float2 __bfloat1622float2(__nv_bfloat162 v) { return {__low2float(v), __high2float(v)}; }
