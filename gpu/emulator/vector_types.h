// SPDX-License-Identifier: Apache-2.0
// The small vectors of CUDA C++, with the same alignment.
#pragma once

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned size_x = 1, unsigned size_y = 1, unsigned size_z = 1)
      : x(size_x), y(size_y), z(size_z) {}
  constexpr dim3(uint3 size) : x(size.x), y(size.y), z(size.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

#define EMULATED_VECTORS(type, prefix, align2, align4)                    \
  struct alignas(align2) prefix##2 {                                      \
    type x, y;                                                            \
  };                                                                      \
  struct alignas(align4) prefix##4 {                                      \
    type x, y, z, w;                                                      \
  };                                                                      \
  constexpr prefix##2 make_##prefix##2(type x, type y) { return {x, y}; } \
  constexpr prefix##4 make_##prefix##4(type x, type y, type z, type w) { return {x, y, z, w}; }

EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(unsigned, uint, 8, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(unsigned char, uchar, 2, 4)
EMULATED_VECTORS(unsigned short, ushort, 4, 8)
EMULATED_VECTORS(long long, longlong, 16, 16)
EMULATED_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATED_VECTORS(double, double, 16, 16)

#undef EMULATED_VECTORS

constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

struct float3 {
  float x, y, z;
};
constexpr float3 make_float3(float x, float y, float z) { return {x, y, z}; }

struct int3 {
  int x, y, z;
};
constexpr int3 make_int3(int x, int y, int z) { return {x, y, z}; }
