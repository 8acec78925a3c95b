// SPDX-License-Identifier: Apache-2.0
// The settings of a product's server by its own names, and the keys of a scenario that say the
// same.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engines/log/log_text.h"

namespace metronome {

// {"chunked_prefill_size", "8192"}, {"enable_mixed_chunk", "True"}. Settings that the engine chose
// by itself have "chosen " before their names.
using EngineArguments = std::map<std::string, std::string>;

inline const std::string kNotSet = "None";  // Python's for a setting that is not set
inline const std::string kChosen = "chosen ";
// Not a setting: the sentence that says where a chosen one comes from, if no line has it.
inline const std::string kOriginNote = "origin";

enum class ArgumentKind : std::uint8_t {
  Count,
  Number,
  Word,
  Switch,
  Negation,
  Off,      // the key's value is 0
  Tokens,   // a count of tokens; the key counts blocks
  Largest,  // of several counts, "1 2 4 8"
};

struct ServerArgument {
  // Of a setting inside another with a dot: "compilation_config.cudagraph_mode". An argument may
  // have several rows.
  std::string_view argument;
  std::string_view key = {};  // empty: the policy's own with the argument's name
  ArgumentKind kind = ArgumentKind::Count;
  std::string_view usual{};  // the engine's default, which needs no mention
  // Word: values that are simulated, "fcfs, lpm"; empty: all. "fp8_e4m3=fp8" is the key's value
  // behind the server's, and with nothing behind it the key is not set.
  std::string_view words{};

  std::string scenario_key() const {
    return key.empty() ? "scheduler." + std::string(argument) : std::string(key);
  }
};

// "--max-num-seqs" of "max_num_seqs".
std::string flag_word(std::string_view argument);
// Whether its value is True or False.
bool is_switch(const ServerArgument& row);
// What `value` is in ServerArgument::words; nullopt: it is none of them.
std::optional<std::string> word_value(std::string_view words, std::string_view value);
// Whether a value has the form that its row asks for; None has none.
bool is_valid(const ServerArgument& row, const std::string& value);
// The largest of "1 2 4" or "[1, 2, 4]"; nullopt: these are not counts.
std::optional<std::int64_t> largest_count(std::string_view value);
// "an integer": what is_valid() allows.
std::string_view allowed_values(const ServerArgument& row);

// The form of a server's start: its words ("vllm serve"), a module of Python, or an image of
// Docker.
struct ServerStart {
  std::string_view words;
  bool is_image = false;
  bool has_versions = true;  // the image's tags are versions of the server
};

// The settings of a product's server. engines/NAME/arguments has the row of a product.
struct ServerArguments {
  std::string_view policy;  // of this product, whose own keys have the names of the settings
  std::string_view title;   // "vLLM"
  // In addition to the policy's own keys. An entry without a key is one of them, whose default is
  // not the usual value.
  std::span<const ServerArgument> rows;
  std::span<const std::string_view> none{};  // keys of the policy that are no settings
  bool has_own_names = false;                // none of the policy's keys has a setting's name
  // Other names in the log, and the arguments that they mean.
  std::span<const std::pair<std::string_view, std::string_view>> renamed{};
  bool has_negations = false;                    // --no-x switches x off
  std::span<const std::string_view> versions{};  // with rules; empty: the version does not matter
  std::string_view model;                        // the argument that names the model
  std::string_view pool{};                       // tokens of the KV cache, which the server chose
  std::string_view block{};                      // tokens of a block
  std::string_view pool_bytes{};                 // memory of the KV cache on each GPU
  // The number of equal engines that share the requests, and the switch with which they are not
  // equal engines.
  std::string_view ranks{};
  std::string_view joint_ranks{};
  std::string_view rank_router{};  // of fleet.router: who divides requests among the ranks
  std::span<const ServerStart> starts{};
  std::string_view variable_prefix{};  // of the names of its environment variables
  // Its log has them before the arguments, as Python writes those.
  std::span<const std::string_view> log_markers{};
  // Arguments that name a file with more of them, as YAML; which of two values counts.
  std::span<const std::string_view> files{};
  bool file_wins = false;
  // Beginnings of words that stand for others: "-O" of "-O3" for "--optimization-level=".
  std::span<const std::pair<std::string_view, std::string_view>> rewrites{};
  // Environment variables that are settings, and the keys of a scenario.
  std::span<const std::pair<std::string_view, std::string_view>> variables{};
  // Adds what follows from lines of a log that are not there.
  void (*complete)(EngineArguments& arguments) = nullptr;
  // Arguments without a row that derive() turns into others.
  std::span<const std::string_view> derived{};
  // Adds what the server derives from its arguments, and takes out what the simulation does not
  // need, with a sentence.
  void (*derive)(EngineArguments& arguments, std::vector<std::string>& notes) = nullptr;

  // All arguments that a scenario has a key for.
  std::vector<ServerArgument> all() const;
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
