// SPDX-License-Identifier: Apache-2.0
// Events of the replicas of a fleet, in words.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/engine/event.h"

namespace metronome {

// A line for each event: "   12.000 s  replica 1 failed: planned; 5 requests began anew". Of many
// the first ones, and a line about the others.
std::vector<std::string> fleet_event_lines(std::span<const FleetEvent> events);

}  // namespace metronome
