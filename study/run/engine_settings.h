// SPDX-License-Identifier: Apache-2.0
// The reverse of engine_flags.h: an engine's settings, from its log or from its command line, as
// keys of a scenario.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engines/log/log_dialect.h"

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

// The settings of a log, with those of `flags` in place of its own. `flags` is a part of the
// engine's command line: "--chunked-prefill-size 4096 --enable-mixed-chunk". Throws UsageError for
// a flag that has no key, or a value that its flag cannot have.
EngineArguments merged_arguments(const EngineLog& log, std::string_view flags);

// The keys that say the same, beginning with `scheduler.policy`; empty if there are no arguments.
// Arguments without a key are left out.
EngineSettings scenario_settings(const LogDialect& engine, const EngineArguments& arguments);

// The key of a flag with its value, "--max-num-seqs 64"; empty: it has none.
std::string key_of_flag(const LogDialect& engine, std::string_view flag);

}  // namespace metronome
