// SPDX-License-Identifier: Apache-2.0
#include "engines/arguments/server_arguments.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/config/config_writer.h"
#include "core/engine/policies/registry.h"

namespace metronome {
namespace {

ArgumentKind kind_of(const DocumentedKey& key) {
  return key.type == "boolean"   ? ArgumentKind::Switch
         : key.type == "integer" ? ArgumentKind::Count
         : key.type == "number"  ? ArgumentKind::Number
                                 : ArgumentKind::Word;
}

// The default without quotes; empty: a switch has none to compare with, nor a limit that is absent.
std::string_view default_word(const DocumentedKey& key) {
  std::string_view word = key.default_value;
  if (key.type == "boolean" || word == "null") return {};
  return word.starts_with('"') ? word.substr(1, word.size() - 2) : word;
}

}  // namespace

std::string flag_word(std::string_view argument) {
  std::string flag = "--" + std::string(argument);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

bool is_switch(const ServerArgument& row) {
  return row.kind == ArgumentKind::Switch || row.kind == ArgumentKind::Negation ||
         row.kind == ArgumentKind::Off;
}

std::optional<std::string> word_value(std::string_view words, std::string_view value) {
  constexpr std::string_view kBetween = ", ";
  while (!words.empty()) {
    const std::string_view entry = words.substr(0, words.find(kBetween));
    const std::size_t equals = std::min(entry.find('='), entry.size());
    if (entry.substr(0, equals) == value) {
      return std::string(equals == entry.size() ? entry : entry.substr(equals + 1));
    }
    words.remove_prefix(std::min(entry.size() + kBetween.size(), words.size()));
  }
  return std::nullopt;
}

bool is_valid(const ServerArgument& row, const std::string& value) {
  switch (row.kind) {
    case ArgumentKind::Count:
    case ArgumentKind::Tokens: return number_in<std::int64_t>(value).has_value();
    case ArgumentKind::Number: return number_in<double>(value).has_value();
    case ArgumentKind::Word:
      return !value.empty() && (value != kNotSet || row.words.find("None=") != std::string::npos);
    case ArgumentKind::Largest: return largest_count(value).has_value();
    case ArgumentKind::Switch:
    case ArgumentKind::Negation:
    case ArgumentKind::Off: return value == "True" || value == "False";
  }
  return false;
}

std::string_view allowed_values(const ServerArgument& row) {
  if (is_switch(row)) return "no value";
  switch (row.kind) {
    case ArgumentKind::Number: return "a number";
    case ArgumentKind::Word: return "a word";
    case ArgumentKind::Largest: return "integers";
    default: return "an integer";
  }
}

std::optional<std::int64_t> largest_count(std::string_view value) {
  std::optional<std::int64_t> largest;
  constexpr std::string_view kBetween = " ,[]()";
  while (!value.empty()) {
    const std::size_t begin = value.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) break;
    value.remove_prefix(begin);
    const std::string_view word = value.substr(0, value.find_first_of(kBetween));
    const std::optional<std::int64_t> count = number_in<std::int64_t>(word);
    if (!count) return std::nullopt;
    largest = std::max(largest.value_or(*count), *count);
    value.remove_prefix(word.size());
  }
  return largest;
}

std::vector<ServerArgument> ServerArguments::all() const {
  const PolicyInfo* info = find_policy(policy);
  METRONOME_CHECK(info != nullptr, "a server has the name of its policy");
  std::vector<ServerArgument> own;
  std::vector<ServerArgument> others;
  for (const ServerArgument& listed : rows) {
    (listed.key.empty() ? own : others).push_back(listed);
  }
  if (has_own_names) return others;
  for (const DocumentedKey& key : info->own_keys) {
    if (std::find(none.begin(), none.end(), key.key) != none.end()) continue;
    auto argument = std::find_if(own.begin(), own.end(), [&key](const ServerArgument& one) {
      return one.argument == key.key;
    });
    if (argument == own.end()) {
      own.push_back({.argument = key.key, .usual = default_word(key)});
      argument = own.end() - 1;
    }
    argument->kind = kind_of(key);
    if (argument->kind == ArgumentKind::Word) argument->words = key.allowed;
  }
  own.insert(own.end(), others.begin(), others.end());
  return own;
}

}  // namespace metronome
