// SPDX-License-Identifier: Apache-2.0
#include "study/run/engine_settings.h"

#include <algorithm>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "engines/log/log_text.h"

namespace metronome {
namespace {

using Row = ServerArgument;
using Kind = ArgumentKind;

std::string flag_of(const Row& row) {
  std::string flag = "--" + std::string(row.argument);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

bool is_switch(const Row& row) {
  return row.kind == Kind::Switch || row.kind == Kind::Negation || row.kind == Kind::Off;
}

// Whether the value has the form that its row asks for.
bool is_valid(const Row& row, const std::string& value) {
  switch (row.kind) {
    case Kind::Count:
    case Kind::Tokens: return number_in<std::int64_t>(value).has_value();
    case Kind::Number: return number_in<double>(value).has_value();
    case Kind::Word: return !value.empty();
    case Kind::Switch:
    case Kind::Negation:
    case Kind::Off: return value == "True" || value == "False";
  }
  return false;
}

std::string known_flags(const LogDialect& engine) {
  std::vector<std::string> flags;
  for (const Row& row : server_arguments(engine)) flags.push_back(flag_of(row));
  return join_names(std::vector<std::string_view>(flags.begin(), flags.end()));
}

// The row of a flag, and the value that the flag has by itself.
const Row* find_row(const LogDialect& engine, const std::vector<Row>& rows, std::string_view flag,
                    std::string& value) {
  for (const Row& row : rows) {
    const std::string name = flag_of(row);
    const bool is_off = engine.has_negations && is_switch(row) && flag == "--no-" + name.substr(2);
    if (flag != name && !is_off && (row.other_flag.empty() || flag != row.other_flag)) continue;
    if (is_switch(row)) value = is_off ? "False" : "True";
    return &row;
  }
  return nullptr;
}

EngineArguments parse_flags(const LogDialect& engine, std::string_view flags) {
  const std::vector<Row> rows = server_arguments(engine);
  EngineArguments arguments;
  std::istringstream words{std::string(flags)};
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    std::string value;
    const Row* row = find_row(engine, rows, flag, value);
    if (row == nullptr) {
      throw UsageError("--flags: '" + printable(flag) + "' is no setting of " +
                       std::string(engine.title) +
                       " that a scenario has; allowed: " + known_flags(engine));
    }
    if (!is_switch(*row)) {
      if (equals != std::string::npos) {
        value = word.substr(equals + 1);
      } else if (!(words >> value)) {
        value.clear();
      }
    }
    const bool has_extra = is_switch(*row) && equals != std::string::npos;
    if (has_extra || !is_valid(*row, value)) {
      constexpr const char* kAllowed[] = {"an integer", "a number", "a word",    "no value",
                                          "no value",   "no value", "an integer"};
      throw UsageError("--flags: '" + flag + "': '" + printable(value) +
                       "' is not valid; allowed: " + kAllowed[static_cast<int>(row->kind)]);
    }
    arguments[std::string(row->argument)] = value;
  }
  return arguments;
}

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

// The value of a key in a scenario; nullopt: there is none for the setting.
std::optional<std::string> key_value(const LogDialect& engine, const Row& row,
                                     const std::string& value, const EngineArguments& arguments) {
  if (row.key == "engine.async_depth") {
    return (value == "True") == (row.kind == Kind::Switch) ? "2" : "1";
  }
  if (row.kind == Kind::Negation) return lower(value == "True" ? "False" : "True");
  if (row.kind == Kind::Switch) return lower(value);
  if (row.kind == Kind::Off) return "0";
  if (row.kind == Kind::Tokens) {
    const std::int64_t page = count_of(arguments, std::string(engine.block_setting)).value_or(1);
    if (page <= 0) return std::nullopt;
    return std::to_string(number_in<std::int64_t>(value).value_or(0) / page);
  }
  const std::string words = ", " + std::string(row.words) + ", ";
  const bool is_known = row.words.empty() || words.find(", " + value + ", ") != std::string::npos;
  return is_known ? std::optional(value) : std::nullopt;
}

// "0.33.1" is 0.33.
void add_version(const LogDialect& engine, const EngineArguments& arguments,
                 EngineSettings& settings) {
  const auto found = arguments.find("version");
  if (engine.versions.empty() || found == arguments.end()) return;
  const std::size_t minor = found->second.find('.');
  const std::string version = found->second.substr(0, found->second.find('.', minor + 1));
  if (std::find(engine.versions.begin(), engine.versions.end(), version) != engine.versions.end()) {
    settings.assignments.push_back("scheduler.version=" + version);
  } else {
    settings.notes.push_back(std::string(engine.title) + " " + printable(found->second) +
                             " is simulated with the rules of the scenario's version.");
  }
}

}  // namespace

EngineArguments merged_arguments(const EngineLog& log, std::string_view flags) {
  const LogDialect& engine = *log.dialect;
  EngineArguments arguments = log.settings;
  for (const std::string& name : log.chosen) move_chosen(arguments, name, name);
  for (const std::string& prefix : {std::string(), kChosen}) {
    for (const auto& [name, argument] : engine.renamed) {
      move_chosen(arguments, prefix + std::string(name), std::string(argument));
    }
    move_chosen(arguments, prefix + std::string(engine.pool_setting), std::string(kPool));
  }
  const EngineArguments given = parse_flags(engine, flags);
  for (const auto& [name, value] : given) arguments[name] = value;
  // Another share of memory or another size is another pool than the log's.
  for (const Row& row : server_arguments(engine)) {
    const bool is_pool =
        row.key == "kv_cache.num_blocks" || row.key == "cost_model.gpu_memory_utilization";
    if (is_pool && given.contains(std::string(row.argument))) {
      arguments.erase(kChosen + std::string(kPool));
    }
  }
  if (engine.complete != nullptr) engine.complete(arguments);
  return arguments;
}

std::vector<std::string> EngineSettings::in_force() const {
  std::vector<std::string> all = flags;
  for (const std::string& one : chosen) {
    std::string flag = "--" + one;
    const auto name_end = flag.begin() + static_cast<std::ptrdiff_t>(flag.find(' '));
    std::replace(flag.begin(), name_end, '_', '-');
    all.push_back(std::move(flag));
  }
  return all;
}

std::string key_of_flag(const LogDialect& engine, std::string_view flag) {
  std::string value;
  const std::vector<Row> rows = server_arguments(engine);
  const Row* row = find_row(engine, rows, flag.substr(0, flag.find(' ')), value);
  return row == nullptr ? std::string() : row->scenario_key();
}

namespace {

// The log's KV cache, in blocks if their size is known.
void add_pool(const LogDialect& engine, const EngineArguments& arguments,
              EngineSettings& settings) {
  const auto tokens = count_of(arguments, kChosen + std::string(kPool));
  if (!tokens) return;
  settings.pool = std::string(kPool) + " " + count_text(*tokens, "token") + " (in the log";
  const auto block = count_of(arguments, std::string(engine.block_setting));
  settings.pool += block ? ")" : "; the block's size is not)";
  if (!block || *block <= 0) {
    settings.pool_tokens = tokens;
  } else {
    settings.assignments.push_back("kv_cache.num_blocks=" + std::to_string(*tokens / *block));
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

void add_flag(const LogDialect& engine, const Row& row, const std::string& value,
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

EngineSettings scenario_settings(const LogDialect& engine, const EngineArguments& arguments) {
  EngineSettings settings;
  if (arguments.empty()) return settings;
  settings.assignments.push_back("scheduler.policy=" + std::string(engine.name));
  add_version(engine, arguments, settings);
  if (const auto note = arguments.find(kOriginNote); note != arguments.end()) {
    settings.notes.push_back(note->second);
  }
  bool has_pool = arguments.contains(kChosen + std::string(kPool));
  bool is_chosen = false;
  const std::vector<Row> rows = server_arguments(engine);
  for (const Row& row : rows) {
    if (row.key == "kv_cache.num_blocks") {
      has_pool = has_pool || value_of(row, arguments, is_chosen) != nullptr;
    }
  }
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
    if (!value) {
      settings.notes.push_back(flag_of(row) + " " + printable(*given) +
                               " is not simulated: the scenario's value stays.");
      continue;
    }
    settings.assignments.push_back(row.scenario_key() + "=" + *value);
    if (is_chosen) {
      settings.chosen.push_back(std::string(row.argument) + " " + printable(*given));
    } else {
      add_flag(engine, row, *given, settings.flags);
    }
  }
  return settings;
}

}  // namespace metronome
