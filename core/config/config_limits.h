// SPDX-License-Identifier: Apache-2.0
// Range limits shared by settings of several sections.
#pragma once

#include <cstdint>
#include <limits>

namespace metronome {

// Seeds are written as YAML integers.
constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();

// Far above any real setting; they keep products of two settings inside 64 bits.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMaxSeqs = std::int64_t{1} << 20;
constexpr double kHourMs = 3'600'000;
constexpr double kShortestLimitMs = 0.001;

}  // namespace metronome
