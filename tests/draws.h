// SPDX-License-Identifier: Apache-2.0
// Draws of property tests. Two draws never stand among the arguments of one call: compilers
// evaluate these in different orders, and a seed would mean different cases.
#pragma once

#include <cstdint>

#include "core/base/rng.h"

namespace metronome::testing {

inline bool chance(Rng& rng, double p) { return rng.uniform() < p; }
inline std::int32_t draw(Rng& rng, std::int32_t low, std::int32_t high) {
  return static_cast<std::int32_t>(rng.uniform_int(low, high));
}

}  // namespace metronome::testing
