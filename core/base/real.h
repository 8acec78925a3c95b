// SPDX-License-Identifier: Apache-2.0
// Counts as factors of real numbers.
#pragma once

#include <concepts>

namespace metronome {

template <std::integral Integer>
constexpr double real(Integer n) {
  return static_cast<double>(n);
}

}  // namespace metronome
