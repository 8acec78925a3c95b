// SPDX-License-Identifier: Apache-2.0
// Decisions of routers, beside recorded ones of running programs.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "study/decisions/decisions.h"

namespace metronome {

// The routers whose records can be replayed.
std::vector<std::string_view> decision_routers();

// Reads cases from `path` and writes them to `out` with Metronome's choices. Where a lot decides,
// that is the first choice. Throws ConfigError as RouterCase does.
void write_router_decisions(std::string_view router, const std::string& path, std::ostream& out);

// Replays every case and compares what the router knew and chose, event by event. A recorded choice
// must be one of those among which a lot decides; the replay goes on with it. Throws as
// write_router_decisions() does, and for an arrival without a choice.
DecisionCheck check_router_decisions(std::string_view router, const std::string& path);

}  // namespace metronome
