// SPDX-License-Identifier: Apache-2.0
// Conversions of the two 16-bit floating-point formats in which weights are stored.
#pragma once

#include <cstdint>

#include "core/base/bits.h"

namespace metronome {

// bfloat16 is the upper half of a float, so the conversion is exact.
constexpr float float_of_bf16(std::uint16_t bits) {
  return bits_as<float>(static_cast<std::uint32_t>(bits) << 16);
}

// The nearest bfloat16, ties to even; a NaN stays a NaN.
constexpr std::uint16_t bf16_of_float(float value) {
  const auto bits = bits_as<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE binary16 (HF's float16). Exact for every value: subnormals, infinities and NaN included.
float float_of_half(std::uint16_t bits);

}  // namespace metronome
