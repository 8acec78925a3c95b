// SPDX-License-Identifier: Apache-2.0
#include "engines/arguments/given_flags.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/config/config_node.h"
#include "engines/flags/known_flags.h"
#include "engines/log/log_text.h"

namespace metronome {
namespace {

// Python's text of a value.
std::string python_text(const Json& value) {
  if (value.is_null()) return kNotSet;
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// "25.6k" is 25,600 and "8K" 8,192: vLLM's human_readable_int (vllm/engine/arg_utils.py).
std::string plain_count(const std::string& value) {
  constexpr std::string_view kDecimal = "kmgt";
  constexpr std::string_view kBinary = "KMGT";
  if (value.size() < 2) return value;
  const std::optional<double> number =
      number_in<double>(std::string_view(value).substr(0, value.size() - 1));
  const std::size_t decimal = kDecimal.find(value.back());
  const std::size_t binary = kBinary.find(value.back());
  if (!number || (decimal == std::string_view::npos && binary == std::string_view::npos)) {
    return value;
  }
  const bool is_decimal = decimal != std::string_view::npos;
  double unit = 1;
  for (std::size_t i = 0; i <= (is_decimal ? decimal : binary); ++i)
    unit *= is_decimal ? 1000 : 1024;
  const double count = *number * unit;
  constexpr double kMost = 9e15;
  if (!(std::abs(count) <= kMost) || count != std::floor(count)) return value;
  return std::to_string(static_cast<std::int64_t>(count));
}

class FlagReader {
 public:
  FlagReader(const ServerArguments& server, const std::string& origin,
             const std::map<std::string, std::string>& files)
      : server_(server), origin_(origin), files_(files), rows_(server.all()) {}

  GivenFlags read(std::span<const std::string> words) {
    for (std::size_t i = 0; i < words.size();) {
      const std::string& word = words[i];
      const bool is_flag = word.size() > 1 && word.front() == '-' && !number_in<double>(word);
      if (is_flag) {
        read_flag(words, i);
      } else {
        read_model(word);
        ++i;
      }
    }
    read_files();
    return take();
  }

  // An argument by the name that the server's log has for it.
  void add_argument(const std::string& argument, const std::string& value) {
    if (is_simulated(argument) || argument == server_.model || is_derived(argument)) {
      given_.arguments[argument] = value;
      return;
    }
    if (add_parts(argument, value, 0) || value.empty() || value == kNotSet || value == "False") {
      return;
    }
    const KnownFlag* flag = flag_of_argument(argument);
    if (flag == nullptr) {  // a name of other versions
      const std::string name = flag_word(argument);
      flag = find_flag(server_.policy, name);
      if (flag != nullptr && !is_word_of(*flag, name)) flag = nullptr;
    }
    if (flag == nullptr) {
      given_.not_modelled.emplace_back(argument, "it is not known");
    } else if (flag->fate == FlagFate::Acts) {
      given_.arguments[flag->argument] = value;
    } else {
      note_fate(*flag, flag->name, value);
    }
  }

  GivenFlags take() {
    if (has_joint_ranks_) given_.num_ranks = 1;
    return std::move(given_);
  }

 private:
  [[noreturn]] void refuse(const std::string& flag, const std::string& problem) const {
    throw UsageError(origin_ + ": '" + printable(flag) + "' " + problem);
  }

  const KnownFlag* flag_of_argument(std::string_view argument) const {
    const std::vector<KnownFlag>& flags = known_flags(server_.policy);
    const auto found = std::find_if(flags.begin(), flags.end(), [argument](const KnownFlag& flag) {
      return flag.argument == argument;
    });
    return found == flags.end() ? nullptr : &*found;
  }

  bool is_simulated(std::string_view argument) const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [argument](const ServerArgument& row) { return row.argument == argument; });
  }

  // Not a beginning of one.
  static bool is_word_of(const KnownFlag& flag, const std::string& name) {
    return flag.name == name ||
           std::find(flag.aliases.begin(), flag.aliases.end(), name) != flag.aliases.end();
  }

  bool is_derived(std::string_view argument) const {
    return std::find(server_.derived.begin(), server_.derived.end(), argument) !=
           server_.derived.end();
  }

  void read_model(const std::string& word) {
    const std::string name(server_.model);
    if (given_.arguments.contains(name)) {
      refuse(word, "follows no flag; allowed: flags of " + std::string(server_.title) +
                       ", and one model");
    }
    given_.arguments[name] = word;
  }

  [[noreturn]] void refuse_unknown(const std::string& flag) const {
    refuse(flag, "is no flag of " + std::string(server_.title) +
                     did_you_mean_flag(server_.policy, flag) +
                     "; allowed: those of docs/reference/engine_flags.md");
  }

  // "--optimization-level=3" of "-O3".
  std::string rewritten(const std::string& word) const {
    for (const auto& [prefix, replacement] : server_.rewrites) {
      if (!word.starts_with(prefix)) continue;
      if (word.size() > prefix.size()) return std::string(replacement) + word.substr(prefix.size());
      return std::string(replacement.substr(0, replacement.find('=')));
    }
    return word;
  }

  void read_flag(std::span<const std::string> words, std::size_t& i) {
    const std::string word = rewritten(words[i++]);
    const std::size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    const KnownFlag* flag = find_flag(server_.policy, name);
    std::string inner;  // "new_key" of "--compilation-config.new_key"
    if (flag == nullptr) {
      const std::size_t dot = name.find('.');
      if (dot == std::string::npos) refuse_unknown(name);
      inner = name.substr(dot + 1);
      flag = find_flag(server_.policy, name.substr(0, dot));
      if (flag == nullptr) refuse_unknown(name);
    }
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    if (!value) value = next_value(*flag, name, inner, words, i);
    add_flag(*flag, name, inner, value);
  }

  // The words that belong to the flag; nullopt: it has none.
  std::optional<std::string> next_value(const KnownFlag& flag, const std::string& name,
                                        const std::string& inner,
                                        std::span<const std::string> words, std::size_t& i) const {
    const auto is_value = [&words](std::size_t at) {
      return at < words.size() && (!words[at].starts_with('-') || words[at].size() == 1 ||
                                   number_in<double>(words[at]).has_value());
    };
    if (flag.takes == FlagTakes::Nothing && inner.empty()) return std::nullopt;
    if (flag.takes == FlagTakes::Optional) {
      return is_value(i) ? std::optional(words[i++]) : std::nullopt;
    }
    if (!is_value(i)) refuse(name, "has no value; allowed: one");
    std::string value = words[i++];
    if (flag.takes != FlagTakes::Values) return value;
    while (is_value(i)) value += " " + words[i++];
    return value;
  }

  void add_flag(const KnownFlag& flag, const std::string& name, const std::string& inner,
                const std::optional<std::string>& value) {
    const bool is_off = is_negation(server_.policy, name);
    std::string text = value.value_or(is_off ? "False" : "True");
    if (text == "true") text = "True";
    if (text == "false") text = "False";
    if (!inner.empty()) return add_inner(flag.argument + "." + inner, text, name, 0);
    check_choice(flag, name, text);
    const bool acts = flag.fate == FlagFate::Acts || flag.argument == server_.model;
    if (std::find(server_.files.begin(), server_.files.end(), flag.argument) !=
        server_.files.end()) {
      names_.push_back(text);
      return;
    }
    if (!acts) return note_fate(flag, name, value.value_or(""));
    if (flag.takes == FlagTakes::Json && is_derived(flag.argument)) {
      if (!origin_.empty() && text != kNotSet && !is_object(text)) refuse_json(name, text);
      given_.arguments[flag.argument] = text;
      return;
    }
    if (add_parts(flag.argument, text, 0)) return;
    if (flag.takes == FlagTakes::Json && !is_simulated(flag.argument)) {
      refuse_json(name, text);
    }
    given_.arguments[flag.argument] = checked(flag.argument, name, text);
  }

  [[noreturn]] void refuse_json(const std::string& name, const std::string& value) const {
    refuse(name, "has the value '" + printable(value) + "'; allowed: JSON, {\"key\": value}");
  }

  static bool is_object(const std::string& text) {
    try {
      return Json::parse(text).is_object();
    } catch (const JsonError&) {
      return text.starts_with('{') && python_arguments(text).has_value();
    }
  }

  // Whether a row gives the word a meaning: releases before those that were read may accept it.
  bool is_old_word(const std::string& argument, const std::string& word) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const ServerArgument& row) {
      return row.argument == argument && word_value(row.words, word);
    });
  }

  // The server refuses a word that is not in its list, in any version that was read. A log has
  // what its server accepted.
  void check_choice(const KnownFlag& flag, const std::string& name,
                    const std::string& value) const {
    const bool is_logged = origin_.empty();
    const bool is_word = value != kNotSet && value != "True" && value != "False";
    if (is_logged || !is_word || flag.choices.empty()) return;
    const bool has_several = flag.takes == FlagTakes::Values;
    std::string_view rest = value;
    while (!rest.empty()) {
      const std::string word(has_several ? rest.substr(0, rest.find(' ')) : rest);
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      const bool is_known =
          std::find(flag.choices.begin(), flag.choices.end(), word) != flag.choices.end();
      if (is_known || is_old_word(flag.argument, word)) continue;
      const std::vector<std::string_view> known(flag.choices.begin(), flag.choices.end());
      refuse(name, "has the value '" + printable(word) + "'" + did_you_mean(word, known) +
                       "; allowed: " + join_names(known));
    }
  }

  // A value that its rows allow, in the form of the server's log.
  std::string checked(const std::string& argument, const std::string& name,
                      const std::string& value) const {
    std::string_view allowed;
    const KnownFlag* flag = flag_of_argument(argument);
    const bool is_short = flag != nullptr && flag->takes_short_numbers;
    const std::string plain = is_short ? plain_count(value) : value;
    for (const ServerArgument& row : rows_) {
      if (row.argument != argument) continue;
      if (is_valid(row, plain)) return plain;
      allowed = allowed_values(row);
    }
    if (allowed.empty()) {
      const bool is_count = !is_short || value == kNotSet || number_in<std::int64_t>(plain);
      if (is_count || origin_.empty()) return plain;
      refuse(name, "has the value '" + printable(value) +
                       "'; allowed: a whole number, also with k, K, m, M, g, G, t or T behind it");
    }
    if (value == kNotSet || value == "auto" || value == "-1") return value;
    refuse(name, "has the value '" + printable(value) + "'; allowed: " + std::string(allowed));
  }

  // The keys inside a value that is an object, of JSON or of Python.
  bool add_parts(const std::string& argument, const std::string& value, int depth) {
    constexpr int kDeepest = 8;
    if (depth > kDeepest) return false;
    if (!value.starts_with('{') && value.find("Config(") == std::string::npos) return false;
    if (value.starts_with('{')) {
      try {
        const Json object = Json::parse(value, {.max_depth = 32, .keys_once = false});
        if (object.is_object()) {
          for (const auto& [key, part] : object.items()) {
            add_inner(argument + "." + key, part.is_object() ? part.dump() : python_text(part),
                      argument, depth);
          }
          return true;
        }
      } catch (const JsonError&) {  // Python's, or not whole
      }
    }
    const auto parts = python_arguments(value);
    if (!parts) return false;
    for (const auto& [key, part] : *parts) add_inner(argument + "." + key, part, argument, depth);
    return true;
  }

  void add_inner(const std::string& argument, const std::string& value, const std::string& name,
                 int depth) {
    const KnownFlag* flag = flag_of_argument(argument);
    if (flag != nullptr) check_choice(*flag, argument, value);
    if (is_simulated(argument)) {
      given_.arguments[argument] = checked(argument, argument, value);
      return;
    }
    if (is_derived(argument)) {
      given_.arguments[argument] = value;
      return;
    }
    if (add_parts(argument, value, depth + 1) || value == kNotSet) return;
    if (flag != nullptr) return note_fate(*flag, flag->name, value);
    // A key that nobody listed may be of a newer version.
    given_.not_modelled.emplace_back(name + ": " + argument, "it is not known");
  }

  // "99+|all": one of these words, or a number as large.
  static bool is_usual(const KnownFlag& flag, const std::string& value) {
    std::string_view rest = flag.usual;
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find('|'));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      if (word == value) return true;
      if (!word.ends_with('+')) continue;
      const auto least = number_in<double>(word.substr(0, word.size() - 1));
      const auto number = number_in<double>(value);
      if (least && number && *number >= *least) return true;
    }
    return false;
  }

  void note_fate(const KnownFlag& flag, const std::string& name, const std::string& value) {
    if (flag.argument == server_.ranks) {
      given_.num_ranks = std::max<std::int64_t>(number_in<std::int64_t>(value).value_or(1), 1);
    }
    has_joint_ranks_ |= !server_.joint_ranks.empty() && flag.argument == server_.joint_ranks;
    const bool is_bare = value.empty() && flag.takes == FlagTakes::Optional;
    if (is_bare ? is_usual(flag, "true") : !value.empty() && is_usual(flag, value)) return;
    const bool is_only_on = flag.takes == FlagTakes::Nothing && !flag.has_negation;
    if (is_only_on && lower_ascii(value) == "false") return;  // a file says that it is off
    if (flag.fate == FlagFate::Changes) {
      const std::string shown = value.empty() || value == "True" ? "" : " " + printable(value);
      given_.not_modelled.emplace_back(name + shown, flag.changes);
    } else if (std::find(given_.ignored.begin(), given_.ignored.end(), name) ==
               given_.ignored.end()) {
      given_.ignored.push_back(name);
    }
  }

  void read_files() {
    for (const std::string& name : names_) {
      GivenFlags inside;
      std::swap(inside, given_);
      read_file_of(name);
      std::swap(inside, given_);
      for (auto& [argument, value] : inside.arguments) {
        if (server_.file_wins) given_.arguments[argument] = value;
        given_.arguments.try_emplace(argument, value);
      }
      given_.num_ranks = std::max(given_.num_ranks, inside.num_ranks);
      for (std::string& note : inside.ignored) given_.ignored.push_back(std::move(note));
      for (auto& flag : inside.not_modelled) given_.not_modelled.push_back(std::move(flag));
    }
  }

  // The settings of a YAML file.
  void read_file_of(const std::string& name) {
    const auto base = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
    const auto known = std::find_if(files_.begin(), files_.end(), [&](const auto& file) {
      return base(file.first) == base(name);
    });
    const std::string text =
        known != files_.end()
            ? known->second
            : read_file(name, "the server's YAML file, beside the command or in the pasted text");
    const ConfigNode tree = parse_config_text(text, name);
    if (tree.kind == ConfigNode::Kind::Null) return;
    if (tree.kind != ConfigNode::Kind::Map) refuse(name, "is no mapping; allowed: settings");
    add_section(tree, "");
  }

  void add_section(const ConfigNode& section, const std::string& prefix) {
    for (const ConfigNode::Entry& entry : section.entries) {
      std::string key = entry.key;
      std::replace(key.begin(), key.end(), '-', '_');
      if (prefix.empty() && key == "serve_args") continue;
      const std::string argument = prefix + key;
      const ConfigNode& value = entry.value;
      if (value.kind == ConfigNode::Kind::Map) {
        add_section(value, argument + ".");
        continue;
      }
      add_setting(argument, text_of(value), value.where);
    }
  }

  static std::string text_of(const ConfigNode& value) {
    if (value.kind == ConfigNode::Kind::Null) return kNotSet;
    if (value.kind != ConfigNode::Kind::Sequence) {
      return value.is_quoted                                      ? value.scalar
             : value.scalar == "true" || value.scalar == "True"   ? "True"
             : value.scalar == "false" || value.scalar == "False" ? "False"
                                                                  : value.scalar;
    }
    std::string text;
    for (const ConfigNode& item : value.items) text += (text.empty() ? "" : " ") + item.scalar;
    return text;
  }

  void add_setting(const std::string& argument, const std::string& value,
                   const SourceLocation& where) {
    const KnownFlag* flag = flag_of_argument(argument);
    if (flag == nullptr) flag = find_flag(server_.policy, argument);
    if (flag == nullptr && argument.find('.') == std::string::npos) {
      flag = find_flag(server_.policy, flag_word(argument));
    }
    if (flag != nullptr && !is_simulated(argument)) return add_flag(*flag, flag->name, "", value);
    if (flag != nullptr) check_choice(*flag, argument, value);
    if (is_simulated(argument)) {
      given_.arguments[argument] = checked(argument, argument, value);
      return;
    }
    throw UsageError(origin_ + ": " + where.to_string() + ": '" + printable(argument) +
                     "' is no setting of " + std::string(server_.title) +
                     "; allowed: those of docs/reference/engine_flags.md");
  }

  const ServerArguments& server_;
  const std::string& origin_;
  const std::map<std::string, std::string>& files_;
  std::vector<ServerArgument> rows_;
  std::vector<std::string> names_;  // of files with more settings
  bool has_joint_ranks_ = false;
  GivenFlags given_;
};

}  // namespace

GivenFlags read_flags(const ServerArguments& server, std::span<const std::string> words,
                      const std::string& origin, const std::map<std::string, std::string>& files) {
  return FlagReader(server, origin, files).read(words);
}

GivenFlags read_logged_arguments(const ServerArguments& server,
                                 const std::map<std::string, std::string>& arguments) {
  const std::map<std::string, std::string> no_files;
  const std::string origin;
  FlagReader reader(server, origin, no_files);
  for (const auto& [argument, value] : arguments) reader.add_argument(argument, value);
  return reader.take();
}

void drop_ranks(const ServerArguments& server, GivenFlags& given) {
  std::erase_if(given.not_modelled, [&server](const auto& one) {
    const std::string_view word = std::string_view(one.first).substr(0, one.first.find(' '));
    const KnownFlag* flag = find_flag(server.policy, word);
    return flag != nullptr && flag->argument == server.ranks;
  });
}

std::string model_of(const ServerArguments& server, const EngineArguments& arguments) {
  const auto found = arguments.find(std::string(server.model));
  return found == arguments.end() || found->second == kNotSet ? std::string() : found->second;
}

void add_notes(const GivenFlags& given, std::vector<std::string>& notes) {
  if (!given.ignored.empty()) {
    std::string names;
    for (const std::string& flag : given.ignored) names += (names.empty() ? "" : ", ") + flag;
    notes.push_back("Without influence on times, and passed over: " + printable(names) + ".");
  }
  std::vector<std::string> told;
  for (const auto& [flag, reason] : given.not_modelled) {
    if (std::find(told.begin(), told.end(), reason) != told.end()) continue;
    told.push_back(reason);
    std::string flags;
    for (const auto& [other, why] : given.not_modelled) {
      if (why == reason) flags += (flags.empty() ? "" : ", ") + other;
    }
    notes.push_back("Not simulated: " + flags + ": " + reason + ".");
  }
}

}  // namespace metronome
