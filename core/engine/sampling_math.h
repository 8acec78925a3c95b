// SPDX-License-Identifier: Apache-2.0
// Sampling arithmetic shared by host and device, so both weigh and order tokens with the same bits.
// The functions have no state and call no C library functions, so device code can call them. Both
// sides are compiled without contraction into fused multiply-adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/bits.h"
#include "core/base/math.h"
#include "core/base/rng.h"

namespace metronome {

// Larger for larger logits, equal for 0 and -0. Between 0x00800000 and 0xff7fffff for finite
// logits.
constexpr std::uint32_t ordered_of(float logit) {
  const auto bits = bits_as<std::uint32_t>(logit + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Larger for likelier tokens. For equal logits (0 equals -0) larger for the lower index.
constexpr std::uint64_t key_of(float logit, std::size_t index) {
  return std::uint64_t{ordered_of(logit)} << 32 | static_cast<std::uint32_t>(~index);
}
constexpr std::size_t index_of(std::uint64_t key) { return static_cast<std::uint32_t>(~key); }

// The uniform number in [0, 1) of a draw, a multiple of 2^-53. It is draw number `position` of the
// SplitMix64 generator that starts at mix64(seed). Streams of nearby seeds are unrelated.
constexpr double uniform_of(std::uint64_t seed, std::int64_t position) {
  return unit_of(mix64(mix64(seed) + kSplitMixStep * static_cast<std::uint64_t>(position)));
}

}  // namespace metronome
