// SPDX-License-Identifier: Apache-2.0
#include "models/weights/float16.h"

namespace metronome {

float float_of_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  std::uint32_t magnitude;
  if (exponent == 0) {  // zero, or a multiple of 2^-24, which is a normal float
    magnitude = bits_as<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
  } else if (exponent == 0x1f) {
    magnitude = 0x7f800000u | (mantissa << 13);
  } else {
    magnitude = ((exponent + (127 - 15)) << 23) | (mantissa << 13);
  }
  return bits_as<float>(sign | magnitude);
}

}  // namespace metronome
