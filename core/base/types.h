// SPDX-License-Identifier: Apache-2.0
// Types that every module shares: identifiers of distinct types, and integer time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace metronome {

// A request's number in order of submission, from 0. It breaks ties between requests.
enum class RequestId : std::uint32_t {};

// A physical KV block, in [0, num_blocks).
enum class BlockId : std::int32_t {};

// A vocabulary entry, in [0, vocab_size).
enum class TokenId : std::int32_t {};

constexpr std::size_t index(RequestId id) { return static_cast<std::size_t>(id); }
constexpr std::size_t index(BlockId id) { return static_cast<std::size_t>(id); }
constexpr std::size_t index(TokenId id) { return static_cast<std::size_t>(id); }
constexpr std::int32_t value(TokenId id) { return static_cast<std::int32_t>(id); }

constexpr RequestId kNoRequest{0xffffffffu};
constexpr BlockId kNoBlock{-1};

// Time is integer nanoseconds since the clock's start. Integers compare without an epsilon.
using TimeNs = std::int64_t;
constexpr TimeNs kNever = INT64_MAX;
constexpr TimeNs kNoTime = -1;  // the event has not happened, or its time is unknown
constexpr TimeNs kNsPerUs = 1'000;
constexpr TimeNs kNsPerMs = 1'000'000;
constexpr TimeNs kNsPerSecond = 1'000'000'000;

constexpr double to_ms(TimeNs ns) { return static_cast<double>(ns) / 1e6; }
constexpr double to_seconds(TimeNs ns) { return static_cast<double>(ns) / 1e9; }

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace metronome
