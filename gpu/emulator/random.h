// SPDX-License-Identifier: Apache-2.0
// The emulator's random numbers: one multiplication each, because every collective draws one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/rng.h"

namespace metronome::emulator {

class FastRandom {
 public:
  explicit FastRandom(std::uint64_t seed = 0) : state_(mix64(seed)) {}

  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;  // Knuth's MMIX
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  bool chance_in_power(unsigned log2) { return (bits() >> (32 - log2)) == 0; }  // 2^-log2
  std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>((std::uint64_t{bits()} * bound) >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace metronome::emulator
