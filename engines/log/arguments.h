// SPDX-License-Identifier: Apache-2.0
// The settings of a product's server by its own names, and the keys of a scenario that say the
// same.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "engines/log/log_text.h"

namespace metronome {

// {"chunked_prefill_size", "8192"}, {"enable_mixed_chunk", "True"}. Settings that the engine chose
// by itself have "chosen " before their names.
using EngineArguments = std::map<std::string, std::string>;

inline const std::string kChosen = "chosen ";
// Not a setting: the sentence that says where a chosen one comes from, if no line has it.
inline const std::string kOriginNote = "origin";

enum class ArgumentKind : std::uint8_t {
  Count,
  Number,
  Word,
  Switch,
  Negation,
  Off,     // the key's value is 0
  Tokens,  // a count of tokens; the key counts blocks
};

struct ServerArgument {
  std::string_view argument;
  std::string_view key = {};  // empty: the policy's own with the argument's name
  ArgumentKind kind = ArgumentKind::Count;
  std::string_view other_flag{};  // a second name of the flag
  std::string_view usual{};       // the engine's default, which needs no mention
  std::string_view words{};       // that are simulated: "fcfs, lpm"; empty: all

  std::string scenario_key() const {
    return key.empty() ? "scheduler." + std::string(argument) : std::string(key);
  }
};

inline std::optional<std::int64_t> count_of(const EngineArguments& arguments,
                                            const std::string& name) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? std::nullopt : number_in<std::int64_t>(found->second);
}
// The value of a setting that is a count, set or chosen by the engine; nullopt: there is none.
inline std::optional<std::int64_t> count_in_force(const EngineArguments& arguments,
                                                  const std::string& name) {
  const auto set = count_of(arguments, name);
  return set ? set : count_of(arguments, kChosen + name);
}

}  // namespace metronome
