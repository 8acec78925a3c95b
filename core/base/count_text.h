// SPDX-License-Identifier: Apache-2.0
// Counts with their noun, and rates.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/base/number_text.h"

namespace metronome {

// "1 request", "2,000 requests". `noun` is singular, and its plural has an s. Its last word is the
// one that changes: "KV block".
template <typename Count>
std::string count_text(Count count, const char* noun) {
  static_assert(std::is_integral_v<Count>);
  return grouped_text(static_cast<std::int64_t>(count)) + " " + noun + (count == 1 ? "" : "s");
}

// The verb behind a count.
template <typename Count>
const char* was_or_were(Count count) {
  return count == 1 ? "was" : "were";
}

// A number per second: two decimals, or more where these would hide its digits.
inline std::string rate_text(double rate) {
  return rate == 0 || std::abs(rate) >= 0.1 ? fixed_text(rate, 2) : ms_text(rate);
}

}  // namespace metronome
