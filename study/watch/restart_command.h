// SPDX-License-Identifier: Apache-2.0
// The command that starts a server again with changed flags, from what its log says of its start.
#pragma once

#include <string>
#include <vector>

#include "engines/flags/server_flags.h"
#include "engines/log/engine_log.h"

namespace metronome {

struct RestartCommand {
  std::string text;                // for a shell; empty: the log does not name the model
  std::vector<std::string> notes;  // what it lacks; one sentence each
};

// All that the log says was set, with the changes. Where a log has all settings, and not only those
// that were set, it has those that act on times.
RestartCommand restart_command(const EngineLog& log, const FlagChanges& changes);

}  // namespace metronome
