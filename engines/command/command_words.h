// SPDX-License-Identifier: Apache-2.0
// Finds the start of a server among the words of one command.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engines/command/pasted_command.h"

namespace metronome {

// The servers of all products that have one, in the order of registration.
std::vector<const ServerArguments*> servers();

// "0.11.0" of a text that begins with it or with "v" and it; empty: it begins otherwise.
std::string leading_version(std::string_view text);

// The server's command among these words; nullopt: there is none. Throws UsageError as
// split_shell() does, for words that are a command of their own.
std::optional<PastedCommand> command_in(const std::vector<std::string>& given,
                                        const std::string& origin);

}  // namespace metronome
