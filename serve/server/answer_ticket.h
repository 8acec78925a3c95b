// SPDX-License-Identifier: Apache-2.0
// The engine's name for a choice of an answer: the number of the client's request, and the index.
#pragma once

#include <cstdint>

#include "serve/server/live_engine.h"

namespace metronome {

inline Ticket ticket_of(std::uint64_t number, std::int32_t choice) {
  return Ticket{number << 16 | static_cast<std::uint64_t>(choice)};
}
inline std::uint64_t number_of(Ticket ticket) { return static_cast<std::uint64_t>(ticket) >> 16; }
inline std::int32_t choice_of(Ticket ticket) {
  return static_cast<std::int32_t>(static_cast<std::uint64_t>(ticket) & 0xffff);
}

}  // namespace metronome
