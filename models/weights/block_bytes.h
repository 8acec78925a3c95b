// SPDX-License-Identifier: Apache-2.0
// Numbers in the blocks of quantised_blocks.h, which have any alignment.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "models/weights/float16.h"

namespace metronome {

static_assert(std::endian::native == std::endian::little, "blocks are stored little-endian");

inline int byte_at(const std::byte* from, int index) { return std::to_integer<int>(from[index]); }

inline std::uint16_t word16_at(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

inline std::uint32_t word32_at(const std::byte* from) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

inline float half_at(const std::byte* from) { return float_of_half(word16_at(from)); }

// The four low bits of number i. Bytes hold numbers `half` apart.
inline int nibble(const std::byte* quants, int i, int half = 16) {
  return (byte_at(quants, i % half) >> (i / half * 4)) & 15;
}

}  // namespace metronome
