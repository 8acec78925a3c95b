// SPDX-License-Identifier: Apache-2.0
#include "engines/arguments/engine_settings.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <set>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/scenario/serving_recipe.h"
#include "engines/flags/known_flags.h"
#include "engines/log/log_dialect.h"

namespace metronome {
namespace {

using Row = ServerArgument;
using Kind = ArgumentKind;

std::string flag_of(const Row& row) { return flag_word(row.argument); }

constexpr std::string_view kPool = "KV cache";  // its tokens, among the chosen ones

// The engine's own choice, under the setting's usual name.
void move_chosen(EngineArguments& arguments, const std::string& name, const std::string& argument) {
  const auto found = arguments.find(name);
  if (found == arguments.end()) return;
  const std::string value = found->second;
  arguments.erase(found);
  arguments[kChosen + argument] = value;
}

std::string lower(const std::string& value) { return value == "True" ? "true" : "false"; }

// The value of a key in a scenario, empty where it stays as it is; nullopt: the setting is not
// simulated.
std::optional<std::string> key_value(const ServerArguments& engine, const Row& row,
                                     const std::string& value, const EngineArguments& arguments) {
  if (row.key == "engine.async_depth") {
    return (value == "True") == (row.kind == Kind::Switch) ? "2" : "1";
  }
  if (row.kind == Kind::Negation) return lower(value == "True" ? "False" : "True");
  if (row.kind == Kind::Switch) return lower(value);
  if (row.kind == Kind::Off) return "0";
  if (row.kind == Kind::Tokens) {
    const std::int64_t page = count_in_force(arguments, std::string(engine.block)).value_or(0);
    if (page <= 0) return std::nullopt;
    return std::to_string(number_in<std::int64_t>(value).value_or(0) / page);
  }
  if (row.kind == Kind::Largest) return std::to_string(largest_count(value).value_or(0));
  return row.words.empty() ? std::optional(value) : word_value(row.words, value);
}

// {0, 33} of "0.33.1": rules change with the second number. nullopt: it names no release.
std::optional<std::pair<int, int>> minor_of(std::string_view version) {
  const std::optional<EngineVersion> named = engine_version(version);
  return named ? std::optional(std::pair((*named)[0], (*named)[1])) : std::nullopt;
}

// "0.33.1" is 0.33; a version without rules of its own has those of the next one that has some.
void add_version(const ServerArguments& engine, const EngineArguments& arguments,
                 EngineSettings& settings) {
  const auto found = arguments.find("version");
  if (engine.versions.empty() || found == arguments.end()) return;
  const std::vector<std::string_view> known = versions_from(engine, found->second);
  settings.assignments.push_back("scheduler.version=" + std::string(known.front()));
  if (minor_of(found->second) == minor_of(known.front())) return;
  settings.notes.push_back(std::string(engine.title) + " " + printable(found->second) +
                           " is simulated with the rules of " + std::string(known.front()) +
                           ", the nearest that are known.");
}

}  // namespace

std::vector<std::string_view> versions_from(const ServerArguments& server,
                                            std::string_view version) {
  const std::optional<std::pair<int, int>> wanted = minor_of(version);
  if (!wanted) return {server.versions.back()};  // a nightly build
  std::vector<std::string_view> from;
  for (const std::string_view one : server.versions) {
    if (minor_of(one) >= wanted) from.push_back(one);
  }
  if (from.empty()) from.push_back(server.versions.back());
  return from;
}

GivenFlags logged_flags(const EngineLog& log) {
  const ServerArguments& server = *log.dialect->server;
  EngineArguments made;
  for (const auto& [name, value] : log.settings) {
    const bool is_renamed =
        std::any_of(server.renamed.begin(), server.renamed.end(),
                    [&name = name](const auto& one) { return one.first == name; });
    const bool is_said = name == "version" || name == server.pool || is_renamed;
    if (!is_said && !log.chosen.contains(name)) made[name] = value;
  }
  return read_logged_arguments(server, made);
}

EngineArguments merged_arguments(const EngineLog& log, const EngineArguments& given) {
  const ServerArguments& engine = *log.dialect->server;
  EngineArguments arguments = log.settings;
  for (auto& [name, value] : logged_flags(log).arguments) arguments.try_emplace(name, value);
  for (const std::string& name : log.chosen) move_chosen(arguments, name, name);
  for (const std::string& prefix : {std::string(), kChosen}) {
    for (const auto& [name, argument] : engine.renamed) {
      move_chosen(arguments, prefix + std::string(name), std::string(argument));
    }
    move_chosen(arguments, prefix + std::string(engine.pool), std::string(kPool));
  }
  for (const auto& [name, value] : given) arguments[name] = value;
  // Each of these keys changes the memory for KV or the bytes of a token, and so the log's pool.
  constexpr std::string_view kOfPool[] = {"kv_cache.num_blocks",
                                          "cost_model.gpu_memory_utilization", "kv_cache.dtype",
                                          "quantization", "cost_model.tensor_parallel_size"};
  for (const Row& row : engine.all()) {
    const bool is_pool =
        std::find(std::begin(kOfPool), std::end(kOfPool), row.key) != std::end(kOfPool);
    const auto found = given.find(std::string(row.argument));
    if (!is_pool || found == given.end()) continue;
    const auto logged = log.settings.find(found->first);
    if (logged == log.settings.end() || logged->second != found->second) {
      arguments.erase(kChosen + std::string(kPool));
    }
  }
  if (engine.complete != nullptr) engine.complete(arguments);
  return arguments;
}

std::vector<std::string> EngineSettings::in_force() const {
  std::vector<std::string> all = flags;
  for (const std::string& one : chosen) {
    const std::size_t name_end = one.find(' ');
    all.push_back(flag_word(one.substr(0, name_end)) + one.substr(name_end));
  }
  return all;
}

std::string key_of_flag(const ServerArguments& engine, std::string_view flag) {
  const KnownFlag* const known = find_flag(engine.policy, flag.substr(0, flag.find(' ')));
  if (known == nullptr) return {};
  for (const Row& row : engine.all()) {
    if (row.argument == known->argument) return row.scenario_key();
  }
  return {};
}

namespace {

// The log's KV cache, in blocks if their size is known.
void add_pool(const ServerArguments& engine, const EngineArguments& arguments,
              EngineSettings& settings) {
  const auto tokens = count_of(arguments, kChosen + std::string(kPool));
  if (!tokens) return;
  settings.pool = std::string(kPool) + " " + count_text(*tokens, "token") + " (in the log";
  const auto block = count_in_force(arguments, std::string(engine.block));
  settings.pool += block ? ")" : "; the block's size is not)";
  if (!block || *block <= 0) {
    settings.pool_tokens = tokens;
  } else {
    settings.assignments.push_back(fmt::format("kv_cache.num_blocks={}", *tokens / *block));
  }
}

// The value of a row's argument; nullptr: there is none. Sets whether the engine chose it.
const std::string* value_of(const Row& row, const EngineArguments& arguments, bool& is_chosen) {
  is_chosen = false;
  const std::string name(row.argument);
  const auto set = arguments.find(name);
  if (set != arguments.end() && is_valid(row, set->second)) return &set->second;  // not None
  const auto chosen = arguments.find(kChosen + name);
  if (chosen == arguments.end() || !is_valid(row, chosen->second)) return nullptr;
  is_chosen = true;
  return &chosen->second;
}

void add_flag(const ServerArguments& engine, const Row& row, const std::string& value,
              std::vector<std::string>& flags) {
  if (!row.usual.empty() && value == row.usual) return;
  if (!is_switch(row)) {
    flags.push_back(flag_of(row) + " " + printable(value));
  } else if (value == "True") {
    flags.push_back(flag_of(row));
  } else if (engine.has_negations) {
    flags.push_back("--no-" + flag_of(row).substr(2));
  }
}

}  // namespace

std::string leave_out_window_settings(std::vector<std::string>& assignments) {
  constexpr std::string_view kRetention = "kv_cache.prefix_cache_retention_interval=";
  const std::size_t num_left_out = std::erase_if(
      assignments, [&](const std::string& one) { return one.starts_with(kRetention); });
  if (num_left_out == 0) return {};
  return "Not simulated: the retention interval of the prefix cache. It acts on layers with a "
         "sliding window, and the scenario has none (kv_cache.sliding_window).";
}

EngineSettings scenario_settings(const ServerArguments& engine, const EngineArguments& given_ones) {
  EngineSettings settings;
  if (given_ones.empty()) return settings;
  EngineArguments arguments = given_ones;
  if (engine.derive != nullptr) engine.derive(arguments, settings.notes);
  settings.assignments.push_back("scheduler.policy=" + std::string(engine.policy));
  add_version(engine, arguments, settings);
  if (const auto note = arguments.find(kOriginNote); note != arguments.end()) {
    settings.notes.push_back(note->second);
  }
  bool has_pool = arguments.contains(kChosen + std::string(kPool));
  bool is_chosen = false;
  const std::vector<Row> rows = engine.all();
  for (const Row& row : rows) {
    if (row.key == "kv_cache.num_blocks") {
      has_pool = has_pool || value_of(row, arguments, is_chosen) != nullptr;
    }
  }
  std::set<std::string_view> simulated;
  std::vector<std::pair<const Row*, std::string>> others;
  for (const Row& row : rows) {
    const std::string* given = value_of(row, arguments, is_chosen);
    const bool is_pool = row.key == "kv_cache.num_blocks";
    if (is_pool && given == nullptr) add_pool(engine, arguments, settings);
    if (given == nullptr) continue;
    // The size of the pool says it exactly.
    if (row.key == "cost_model.gpu_memory_utilization" && has_pool) {
      if (!is_chosen) add_flag(engine, row, *given, settings.flags);
      continue;
    }
    if (row.kind == Kind::Off && *given == "False") continue;
    const std::optional<std::string> value = key_value(engine, row, *given, arguments);
    if (!value && row.kind == Kind::Tokens && !is_chosen) {  // blocks of the scenario's size
      settings.pool_tokens = number_in<std::int64_t>(*given);
      add_flag(engine, row, *given, settings.flags);
      continue;
    }
    if (!value) {
      others.emplace_back(&row, *given);
      continue;
    }
    const bool is_first = simulated.insert(row.argument).second;
    if (!value->empty()) settings.assignments.push_back(row.scenario_key() + "=" + *value);
    if (!is_first) continue;
    if (is_chosen) {
      settings.chosen.push_back(std::string(row.argument) + " " + printable(*given));
    } else {
      add_flag(engine, row, *given, settings.flags);
    }
  }
  for (const auto& [row, given] : others) {
    if (!simulated.insert(row->argument).second) continue;
    settings.notes.push_back(flag_of(*row) + " " + printable(given) +
                             " is not simulated: the scenario's value stays.");
  }
  return settings;
}

}  // namespace metronome
