// SPDX-License-Identifier: Apache-2.0
// The bits of a value as another type: std::bit_cast, which not every standard library has.
#pragma once

#include <type_traits>

namespace metronome {

template <class To, class From>
constexpr To bits_as(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  static_assert(std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>);
  return __builtin_bit_cast(To, from);
}

}  // namespace metronome
