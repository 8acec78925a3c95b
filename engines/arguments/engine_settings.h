// SPDX-License-Identifier: Apache-2.0
// The reverse of engines/flags: an engine's settings, from its log or from its command line, as
// keys of a scenario.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engines/arguments/given_flags.h"
#include "engines/arguments/server_arguments.h"
#include "engines/log/engine_log.h"

namespace metronome {

struct EngineSettings {
  std::vector<std::string> assignments;  // "scheduler.chunked_prefill_size=8192"
  std::vector<std::string> flags;        // the same as flags, but for defaults
  std::vector<std::string> notes;        // what is not simulated as it is set; one sentence each
  std::vector<std::string> chosen;       // by the server: "max_num_batched_tokens 8192"
  // Of the KV cache, if its blocks are counted by kv_cache.block_size of the scenario.
  std::optional<std::int64_t> pool_tokens = {};
  std::string pool;  // "KV cache 96,000 tokens"; empty: the log does not have it

  // The settings that are set and those that the server chose, both as flags.
  std::vector<std::string> in_force() const;
};

// The settings of a log that its user made, in the names of flags.
GivenFlags logged_flags(const EngineLog& log);

// The settings of a log, with the given ones in place of its own.
EngineArguments merged_arguments(const EngineLog& log, const EngineArguments& given);

// The keys that say the same, beginning with `scheduler.policy`; empty if there are no arguments.
// Arguments without a key are left out.
EngineSettings scenario_settings(const ServerArguments& server, const EngineArguments& arguments);

// Leaves out settings that need kv_cache.sliding_window, for a scenario without one. Returns a
// sentence that says so; empty: there were none.
std::string leave_out_window_settings(std::vector<std::string>& assignments);

// The versions of a server that have rules, from the first that is not older than this one on; the
// newest where all are older. `server` has such versions.
std::vector<std::string_view> versions_from(const ServerArguments& server,
                                            std::string_view version);

// The key of a flag with its value, "--max-num-seqs 64"; empty: it has none.
std::string key_of_flag(const ServerArguments& server, std::string_view flag);

}  // namespace metronome
