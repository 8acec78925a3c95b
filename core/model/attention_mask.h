// SPDX-License-Identifier: Apache-2.0
// Which positions a query attends to. Every mask and attention loop uses this rule.
#pragma once

#include <algorithm>
#include <cstdint>

namespace metronome {

constexpr std::int32_t kNoWindow = INT32_MAX;

// Causal, and at most `window` tokens back, including the query's own. Requires window >= 1.
constexpr bool attends(std::int32_t q_pos, std::int32_t kv_pos, std::int32_t window) {
  return kv_pos <= q_pos && q_pos - kv_pos < window;
}

// attends(q_pos, kv_pos, window) holds for kv_pos in [first_attended(q_pos, window), q_pos].
constexpr std::int32_t first_attended(std::int32_t q_pos, std::int32_t window) {
  return std::max(0, q_pos - (window - 1));
}

}  // namespace metronome
