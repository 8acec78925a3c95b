// SPDX-License-Identifier: Apache-2.0
// Finds the start of a server in a text that somebody pasted: a line of a shell or of its history,
// a script, a Dockerfile, a compose or Kubernetes file, Helm's values, or the line of a log that
// has the server's arguments.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engines/arguments/given_flags.h"

namespace metronome {

struct PastedCommand {
  const ServerArguments* server = nullptr;
  std::string version;             // "0.11.0", of the image or of the log; empty: not said
  std::vector<std::string> words;  // behind those that start the server
  std::map<std::string, std::string> variables;  // of the environment
  std::map<std::string, std::string> files;      // that the text writes
  // Of a log, instead of words.
  std::optional<std::map<std::string, std::string>> logged;
};

// `expected` is the server of flags without its start; nullptr: they are refused. Throws
// UsageError, which begins with `origin`, if the text starts no known server, or several.
PastedCommand find_command(std::string_view text, const ServerArguments* expected,
                           const std::string& origin);

GivenFlags flags_of(const PastedCommand& command, const std::string& origin);

// The flags of a text, which may begin with the words that start the server. Throws UsageError as
// read_flags() and find_command() do.
GivenFlags read_flags(const ServerArguments& server, std::string_view text,
                      const std::string& origin);

// "vllm serve, sglang.launch_server, ...": what starts a server that is known.
std::string known_starts();

}  // namespace metronome
