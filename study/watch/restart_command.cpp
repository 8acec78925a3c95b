// SPDX-License-Identifier: Apache-2.0
#include "study/watch/restart_command.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <optional>
#include <string_view>

#include "core/base/names.h"
#include "engines/arguments/engine_settings.h"
#include "engines/flags/known_flags.h"
#include "engines/log/log_dialect.h"

namespace metronome {
namespace {

bool is_plain_word(std::string_view word) {
  constexpr std::string_view kPlain = "-_./:=@%+,";
  return !word.empty() && std::all_of(word.begin(), word.end(), [kPlain](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kPlain.find(c) != std::string_view::npos;
  });
}

// A word of a shell's line.
std::string shell_word(std::string_view word) {
  if (is_plain_word(word)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

// "['a', 'b']" as "a b".
std::string list_words(std::string_view list) {
  if (list.starts_with('[') && list.ends_with(']')) list = list.substr(1, list.size() - 2);
  std::string words;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(", "), list.size());
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 2, list.size()));
    const bool is_quoted = item.size() > 1 && (item.front() == '\'' || item.front() == '"');
    if (is_quoted) item = item.substr(1, item.size() - 2);
    words += (words.empty() ? "" : " ") + shell_word(item);
  }
  return words;
}

// Python's "{'a': True}" as JSON; nullopt: texts in it have quotes of their own.
std::optional<std::string> json_of(std::string_view value) {
  if (value.find('"') != std::string_view::npos || value.find('\\') != std::string_view::npos) {
    return std::nullopt;
  }
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"True", "true"}, {"False", "false"}, {"None", "null"}};
  std::string json;
  bool is_text = false;
  while (!value.empty()) {
    const auto* const word =
        std::find_if(std::begin(kWords), std::end(kWords),
                     [&](const auto& one) { return value.starts_with(one.first); });
    if (!is_text && word != std::end(kWords)) {
      json += word->second;
      value.remove_prefix(word->first.size());
      continue;
    }
    const bool is_quote = value.front() == '\'';
    is_text = is_text != is_quote;
    json += is_quote ? '"' : value.front();
    value.remove_prefix(1);
  }
  return is_text ? std::nullopt : std::optional(json);
}

// nullopt: the value is not written as a flag.
std::optional<std::string> flag_text(const KnownFlag& flag, const std::string& value) {
  if (value == "True") return flag.name;
  if (value == "False") {
    if (!flag.has_negation) return std::nullopt;
    return "--no-" + flag.name.substr(2);
  }
  if (flag.takes == FlagTakes::Nothing) return std::nullopt;
  if (flag.takes == FlagTakes::Json || value.starts_with('{')) {
    const auto json = json_of(value);
    return json ? std::optional(flag.name + " " + shell_word(*json)) : std::nullopt;
  }
  const std::string words = value.starts_with('[') ? list_words(value) : shell_word(value);
  return words.empty() ? std::nullopt : std::optional(flag.name + " " + words);
}

// A flag without its value and its negation.
std::string name_of(const std::string& flag) {
  const std::string word = flag.substr(0, flag.find(' '));
  return word.starts_with("--no-") ? "--" + word.substr(5) : word;
}

bool logs_only_set(const ServerArguments& server) {
  return std::any_of(server.log_markers.begin(), server.log_markers.end(),
                     [](std::string_view marker) { return marker.starts_with("non-default"); });
}

// The given settings, as flags, but for the model.
std::vector<std::string> set_flags(const EngineLog& log, RestartCommand& command) {
  const ServerArguments& server = *log.dialect->server;
  if (!logs_only_set(server)) {
    command.notes.push_back(
        "The log has all settings, not only those that were set: the command has those that act on "
        "times. Keep your other flags.");
    return scenario_settings(server, merged_arguments(log, {})).flags;
  }
  std::vector<std::string> flags;
  for (const KnownFlag& flag : known_flags(server.policy)) {
    const auto found = log.settings.find(flag.argument);
    if (flag.name.find('.') != std::string::npos || found == log.settings.end()) continue;
    const bool is_model = flag.argument == server.model || log.chosen.contains(flag.argument);
    const std::string& value = found->second;
    if (is_model || flag.argument.empty() || value == kNotSet) continue;
    // A secret is not for a terminal or a file.
    auto text = flag.name == "--api-key" ? std::nullopt : flag_text(flag, value);
    if (text) {
      flags.push_back(std::move(*text));
    } else {
      command.notes.push_back("The command lacks " + flag.name + ": keep yours.");
    }
  }
  return flags;
}

// "vllm serve MODEL", "python3 -m sglang.launch_server --model-path MODEL".
std::string start_words(const ServerArguments& server, const std::string& model) {
  const std::string words(server.starts.front().words);
  if (words.find(' ') != std::string::npos) return words + " " + shell_word(model);
  return "python3 -m " + words + " " + flag_word(server.model) + " " + shell_word(model);
}

}  // namespace

RestartCommand restart_command(const EngineLog& log, const FlagChanges& changes) {
  RestartCommand command;
  const ServerArguments& server = *log.dialect->server;
  const std::string model = model_of(server, merged_arguments(log, {}));
  if (model.empty() || server.starts.empty()) return command;
  std::vector<std::string> flags = set_flags(log, command);
  const auto put = [&flags](const std::string& flag) {
    const auto same = std::find_if(flags.begin(), flags.end(), [&flag](const std::string& one) {
      return name_of(one) == name_of(flag);
    });
    if (same == flags.end()) {
      flags.push_back(flag);
    } else {
      *same = flag;
    }
  };
  for (const auto& [before, after] : changes.changed) put(after);
  for (const std::string& flag : changes.added) put(flag);
  for (const std::string& removed : changes.removed) {
    std::erase_if(
        flags, [&removed](const std::string& flag) { return name_of(flag) == name_of(removed); });
  }
  command.text = start_words(server, model);
  for (const std::string& flag : flags) command.text += " " + printable(flag);
  return command;
}

}  // namespace metronome
