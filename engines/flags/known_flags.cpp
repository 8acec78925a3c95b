// SPDX-License-Identifier: Apache-2.0
#include "engines/flags/known_flags.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/names.h"
#include "core/scenario/engine_product.h"
#include "engines/flags/server_flags.h"

namespace metronome {
namespace {

struct FoundFlag {
  std::size_t index = 0;  // in FlagTable::flags
  bool is_negation = false;
};

// flags.yaml of an engine.
struct FlagTable {
  std::vector<KnownFlag> flags;
  std::vector<std::string> versions;
  std::map<std::string, FoundFlag, std::less<>> by_word;
  bool takes_underscores = false;     // --max_num_seqs
  bool takes_beginnings = false;      // --max-num-s
  bool pairs_enable_disable = false;  // --disable-lora for --no-enable-lora
};

// The next word of a line, which loses it; empty at its end.
std::string_view pop_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

FlagTakes takes_of(std::string_view word) {
  constexpr std::array<std::string_view, 5> kWords = {"nothing", "value", "optional", "values",
                                                      "json"};
  const auto* const found = std::find(kWords.begin(), kWords.end(), word);
  METRONOME_CHECK(found != kWords.end(), "flags.yaml: a flag takes something or nothing");
  return static_cast<FlagTakes>(found - kWords.begin());
}

using Reasons = std::map<std::string, std::string, std::less<>>;

void set_fate(std::string_view word, const Reasons& reasons, KnownFlag& flag) {
  if (word == "acts") {
    flag.fate = FlagFate::Acts;
  } else if (word != "ignored") {
    const auto reason = reasons.find(word);
    METRONOME_CHECK(reason != reasons.end(), "flags.yaml: no reason " + std::string(word));
    flag.fate = FlagFate::Changes;
    flag.changes = reason->second;
  }
}

// The parts of "auto|fp8".
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('|'));
    parts.emplace_back(part);
    text.remove_prefix(std::min(part.size() + 1, text.size()));
  }
  return parts;
}

// "--data-parallel-size: value ranks -dp usual 1 from 0.22.0".
KnownFlag read_flag(std::string_view line, const Reasons& reasons) {
  KnownFlag flag;
  const std::string_view name = pop_word(line);
  METRONOME_CHECK(name.ends_with(':'), "flags.yaml: a line is NAME: TAKES FATE");
  flag.name = name.substr(0, name.size() - 1);
  flag.takes = takes_of(pop_word(line));
  set_fate(pop_word(line), reasons, flag);
  const std::pair<std::string_view, std::string*> texts[] = {{"as", &flag.argument},
                                                             {"usual", &flag.usual},
                                                             {"from", &flag.first_version},
                                                             {"to", &flag.last_version}};
  for (std::string_view word = pop_word(line); !word.empty(); word = pop_word(line)) {
    const auto* const text = std::find_if(std::begin(texts), std::end(texts),
                                          [word](const auto& one) { return one.first == word; });
    if (text != std::end(texts)) {
      *text->second = pop_word(line);
    } else if (word == "no") {
      flag.has_negation = true;
    } else if (word == "not") {
      flag.negations.emplace_back(pop_word(line));
    } else if (word == "of") {
      flag.choices = parts_of(pop_word(line));
    } else if (word == "short") {
      flag.takes_short_numbers = true;
    } else {
      flag.aliases.emplace_back(word);
    }
  }
  if (flag.argument.empty()) {
    flag.argument = flag.name.substr(std::min(flag.name.find_first_not_of('-'), flag.name.size()));
    std::replace(flag.argument.begin(), flag.argument.end(), '-', '_');
  }
  return flag;
}

void add_word(std::string word, FoundFlag found, FlagTable& table) {
  table.by_word.emplace(std::move(word), found);  // the first one keeps a word
}

// "--enable-lora" for "--disable-lora", and the reverse; empty for other words.
std::string other_of_pair(const std::string& word) {
  constexpr std::string_view kEnable = "--enable-", kDisable = "--disable-";
  if (word.starts_with(kEnable)) return std::string(kDisable) + word.substr(kEnable.size());
  if (word.starts_with(kDisable)) return std::string(kEnable) + word.substr(kDisable.size());
  return {};
}

void add_words(std::size_t index, FlagTable& table) {
  const KnownFlag& flag = table.flags[index];
  std::vector<std::string> words = {flag.name};
  words.insert(words.end(), flag.aliases.begin(), flag.aliases.end());
  for (const std::string& word : words) add_word(word, {index}, table);
  for (const std::string& word : flag.negations) add_word(word, {index, true}, table);
  if (!flag.has_negation) return;
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    add_word("--no-" + word.substr(2), {index, true}, table);
    if (const std::string other = other_of_pair(word);
        table.pairs_enable_disable && !other.empty()) {
      add_word(other, {index, true}, table);
    }
  }
}

// A line before the flags: "versions: 0.32.0 0.33.0", or "  ranks: the load is ..." of a reason.
void read_head(std::string_view line, FlagTable& table, Reasons& reasons) {
  const bool is_reason = line.starts_with("  ");
  const std::string_view key = pop_word(line);
  if (is_reason) {
    reasons[std::string(key.substr(0, key.size() - 1))] =
        line.substr(std::min<std::size_t>(1, line.size()));
  } else if (key == "versions:") {
    for (std::string_view word = pop_word(line); !word.empty(); word = pop_word(line)) {
      table.versions.emplace_back(word);
    }
  } else if (key == "words:") {
    for (std::string_view word = pop_word(line); !word.empty(); word = pop_word(line)) {
      table.takes_underscores |= word == "underscores";
      table.takes_beginnings |= word == "beginnings";
      table.pairs_enable_disable |= word == "enable-disable";
    }
  }
}

FlagTable read_table(std::string_view text) {
  FlagTable table;
  Reasons reasons;
  bool is_head = true;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    if (line == "flags:") {
      is_head = false;
    } else if (is_head) {
      read_head(line, table, reasons);
    } else {
      table.flags.push_back(read_flag(line, reasons));
    }
  }
  // Names first: an alias of one flag may be a name of another in other versions.
  for (std::size_t i = 0; i < table.flags.size(); ++i) add_word(table.flags[i].name, {i}, table);
  for (std::size_t i = 0; i < table.flags.size(); ++i) add_words(i, table);
  return table;
}

const FlagTable& table_of(std::string_view engine) {
  static const std::map<std::string, FlagTable, std::less<>> all = [] {
    std::map<std::string, FlagTable, std::less<>> tables;
    for (const EngineProduct& product : all_engines()) {
      if (product.flags == nullptr || product.flags->known == nullptr) continue;
      tables.emplace(product.name, read_table(*product.flags->known));
    }
    return tables;
  }();
  static const FlagTable kNone;
  const auto found = all.find(engine);
  return found == all.end() ? kNone : found->second;
}

// The only flag of the newest version that begins so: argparse of Python takes it, too.
std::optional<FoundFlag> find_beginning(const FlagTable& table, std::string_view word) {
  if (!table.takes_beginnings || !word.starts_with("--") || word.size() <= 2) return std::nullopt;
  std::optional<FoundFlag> only;
  for (auto it = table.by_word.lower_bound(word);
       it != table.by_word.end() && it->first.starts_with(word); ++it) {
    const FoundFlag& found = it->second;
    if (it->first.find('.') != std::string::npos) continue;
    if (!table.flags[found.index].last_version.empty()) continue;
    if (only && (only->index != found.index || only->is_negation != found.is_negation)) {
      return std::nullopt;
    }
    only = found;
  }
  return only;
}

std::optional<FoundFlag> find_whole(const FlagTable& table, std::string word) {
  if (table.takes_underscores && word.starts_with("--")) {
    std::replace(word.begin(), word.end(), '_', '-');
  }
  const auto found = table.by_word.find(word);
  return found == table.by_word.end() ? find_beginning(table, word) : found->second;
}

// The numbers of a version: {0, 5, 10, 1} of "0.5.10.post1".
std::vector<int> numbers_of(std::string_view version) {
  constexpr int kMost = 100'000'000;  // of a number that anybody may write
  std::vector<int> numbers;
  bool goes_on = false;
  for (const char c : version) {
    const bool is_digit = c >= '0' && c <= '9';
    if (is_digit && !goes_on) numbers.push_back(0);
    if (is_digit) numbers.back() = std::min(numbers.back() * 10 + (c - '0'), kMost);
    goes_on = is_digit;
  }
  return numbers;
}

// As many numbers of a version as another one has.
std::vector<int> shortened(std::vector<int> version, const std::vector<int>& other) {
  version.resize(std::min(version.size(), other.size()));
  return version;
}

bool has_inner_keys(const FlagTable& table, const std::string& name) {
  const std::string before = name + ".";
  const auto next = table.by_word.lower_bound(before);
  return next != table.by_word.end() && next->first.starts_with(before);
}

// The words of a command line, or the dotted name of a key of a YAML file.
std::optional<FoundFlag> find_word(const FlagTable& table, std::string_view word) {
  if (const auto whole = table.by_word.find(word); whole != table.by_word.end()) {
    return whole->second;
  }
  const std::size_t dot = word.find('.');
  std::optional<FoundFlag> found = find_whole(table, std::string(word.substr(0, dot)));
  if (!found || dot == std::string_view::npos) return found;
  if (table.flags[found->index].takes != FlagTakes::Json) return std::nullopt;
  std::string_view rest = word.substr(dot + 1);
  std::string name = table.flags[found->index].name;
  while (!rest.empty()) {
    // A list of the inner keys is complete; a flag without one takes any.
    if (!has_inner_keys(table, name)) return found;
    const std::string_view key = rest.substr(0, rest.find('.'));
    name += "." + std::string(key.substr(0, key.find('+')));
    const auto inner = table.by_word.find(name);
    if (inner == table.by_word.end()) return std::nullopt;
    found = inner->second;
    rest.remove_prefix(std::min(key.size() + 1, rest.size()));
  }
  return found;
}

}  // namespace

const std::vector<KnownFlag>& known_flags(std::string_view engine) {
  return table_of(engine).flags;
}

const std::vector<std::string>& flag_versions(std::string_view engine) {
  return table_of(engine).versions;
}

bool is_in_version(const KnownFlag& flag, std::string_view version) {
  const std::vector<int> own = numbers_of(version);
  return !(own < shortened(numbers_of(flag.first_version), own)) &&
         (flag.last_version.empty() || !(shortened(numbers_of(flag.last_version), own) < own));
}

FlagPresence presence_in_version(std::string_view engine, const KnownFlag& flag,
                                 std::string_view version) {
  if (is_in_version(flag, version)) return FlagPresence::Present;
  const std::vector<std::string>& read = table_of(engine).versions;
  const std::vector<int> own = numbers_of(version);
  const auto first = std::find(read.begin(), read.end(), flag.first_version);
  const auto last = std::find(read.begin(), read.end(), flag.last_version);
  const bool is_before = first != read.end() && own < shortened(numbers_of(*first), own);
  // The nearest version without the flag.
  const auto without = is_before ? first - 1 : last + 1;
  const bool is_known = is_before ? !(shortened(numbers_of(*without), own) < own)
                                  : !(own < shortened(numbers_of(*without), own));
  return is_known ? FlagPresence::Absent : FlagPresence::Unknown;
}

const KnownFlag* find_flag(std::string_view engine, std::string_view word) {
  const FlagTable& table = table_of(engine);
  const std::optional<FoundFlag> found = find_word(table, word);
  return found ? &table.flags[found->index] : nullptr;
}

bool is_negation(std::string_view engine, std::string_view word) {
  const std::optional<FoundFlag> found = find_word(table_of(engine), word);
  return found && found->is_negation;
}

std::string did_you_mean_flag(std::string_view engine, std::string_view word) {
  const FlagTable& table = table_of(engine);
  const std::string_view head = word.substr(0, word.find('='));
  std::vector<std::string_view> names;
  for (const auto& [name, found] : table.by_word) {
    if (table.flags[found.index].last_version.empty()) names.push_back(name);
  }
  return did_you_mean(head, names);
}

}  // namespace metronome
