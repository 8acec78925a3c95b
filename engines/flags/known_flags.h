// SPDX-License-Identifier: Apache-2.0
// Every flag of an engine's server, and what becomes of it here: engines/NAME/flags.yaml, which
// tools/engine_flags keeps complete.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

enum class FlagTakes : std::uint8_t {
  Nothing,
  Value,
  Optional,  // a value or nothing
  Values,    // one or more
  Json,
};

enum class FlagFate : std::uint8_t {
  Acts,     // a scenario has a key for it
  Ignored,  // it has no influence on times
  Changes,  // it has one that is not simulated
};

struct KnownFlag {
  // "--max-num-seqs"; "--compilation-config.mode" is a key of the JSON that a flag takes, and
  // "kv_cache_config.dtype" one of a server's YAML file.
  std::string name;
  std::vector<std::string> aliases;
  FlagTakes takes = FlagTakes::Nothing;
  FlagFate fate = FlagFate::Ignored;
  std::string argument;  // "max_num_seqs": its name in the server's log
  std::string changes;   // what it would change, without a full stop
  // Its default, for some, or the words with that effect, "on|auto", and numbers as large as "99+";
  // empty: not known.
  std::string usual;
  std::vector<std::string> choices;         // the only words that it takes; empty: not known
  std::string first_version, last_version;  // empty: the first, or the last, that was read
  bool has_negation = false;                // --no-max-num-seqs
  std::vector<std::string> negations;       // other words that switch it off: "-nocb"
  bool takes_short_numbers = false;         // "8K" for 8192
};

// The flags of an engine (EngineProduct::name), in the order of their names; none: its server's are
// not listed. The lists are read once, at the first call.
const std::vector<KnownFlag>& known_flags(std::string_view engine);

// The versions of the server that the list was read from, the oldest first.
const std::vector<std::string>& flag_versions(std::string_view engine);

// Whether a version of the server has the flag. "0.25" stands for each of 0.25.0, 0.25.1 and so on.
bool is_in_version(const KnownFlag& flag, std::string_view version);

// Whether a version has the flag, where it may lie between two that the list was read from.
enum class FlagPresence : std::uint8_t { Present, Absent, Unknown };
FlagPresence presence_in_version(std::string_view engine, const KnownFlag& flag,
                                 std::string_view version);

// The flag that the server understands by this word: a name, an alias, a negation, a beginning that
// only one flag has, a name with `_` for `-`, each where the server's parser takes it, or a key of
// JSON ("-cc.mode"). Without a value behind `=`. nullptr: it refuses the word.
const KnownFlag* find_flag(std::string_view engine, std::string_view word);

// Whether a word that find_flag() finds switches its flag off: "--no-enable-lora".
bool is_negation(std::string_view engine, std::string_view word);

// `, did you mean '--max-num-seqs'?` for a word that no flag has, or nothing.
std::string did_you_mean_flag(std::string_view engine, std::string_view word);

}  // namespace metronome
