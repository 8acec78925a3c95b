// SPDX-License-Identifier: Apache-2.0
// Flags of a server as its command line has them. Every flag that the server has is known: it acts
// on the simulation, or it has no influence on times, or it has one that is not modelled.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engines/arguments/server_arguments.h"

namespace metronome {

struct GivenFlags {
  EngineArguments arguments;         // those that act, and the model
  std::vector<std::string> ignored;  // "--host": without influence on times; each once
  // Keys of a scenario with values, which environment variables set.
  std::vector<std::pair<std::string, std::string>> keys;
  // "--data-parallel-size 8", and what it would change.
  std::vector<std::pair<std::string, std::string>> not_modelled;
  std::int64_t num_ranks = 1;  // equal engines, which share the requests; also in not_modelled
};

// Reads `words` as the server does; a word without a flag is the model. `files` are texts of files
// by their names, before those of the disk. Messages begin with `origin`. Throws UsageError for a
// flag that the server does not have, and for a value that its flag cannot have.
GivenFlags read_flags(const ServerArguments& server, std::span<const std::string> words,
                      const std::string& origin,
                      const std::map<std::string, std::string>& files = {});
// Arguments by the names of the server's log, with values as Python writes them.
GivenFlags read_logged_arguments(const ServerArguments& server,
                                 const std::map<std::string, std::string>& arguments);

// Takes out of `not_modelled` that there are several ranks, where a load is divided among them.
void drop_ranks(const ServerArguments& server, GivenFlags& given);

// The model that the arguments name; empty: none.
std::string model_of(const ServerArguments& server, const EngineArguments& arguments);

// Adds a sentence about the flags that are passed over, and one for each reason why others are not
// modelled.
void add_notes(const GivenFlags& given, std::vector<std::string>& notes);

}  // namespace metronome
