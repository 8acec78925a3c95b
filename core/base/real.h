// SPDX-License-Identifier: Apache-2.0
// Counts as factors of real numbers, and a unit.
#pragma once

#include <concepts>

namespace metronome {

constexpr double kGib = 1024.0 * 1024 * 1024;  // bytes

template <std::integral Integer>
constexpr double real(Integer n) {
  return static_cast<double>(n);
}

}  // namespace metronome
