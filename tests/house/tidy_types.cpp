// SPDX-License-Identifier: Apache-2.0
// The rule that a type has one definition, over all files together.
#include <algorithm>
#include <map>
#include <set>

#include "tests/house/tidy.h"

namespace metronome::testing {
namespace {

struct TypeDefinition {
  std::string name;  // with its namespaces
  std::size_t line;
};

std::string_view without_word(std::string_view text, std::string_view word) {
  const bool has_word = text.starts_with(word) &&
                        (text.size() == word.size() || !is_identifier_char(text[word.size()]));
  return has_word ? trimmed(text.substr(word.size())) : text;
}

// Behind what opens at its first character; the whole text where that is not `open`.
std::string_view behind_brackets(std::string_view text, char open, char close) {
  if (!text.starts_with(open)) return text;
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == open) ++depth;
    if (text[at] == close && --depth == 0) return trimmed(text.substr(at + 1));
  }
  return {};
}

// Finds types that are defined at the scope of a namespace that has a name, or of none. `statement`
// is the code since the last place where a declaration can start.
class TypeScanner {
 public:
  explicit TypeScanner(std::string_view code) : code_(code) {}

  std::vector<TypeDefinition> scan() {
    for (std::size_t at = 0; at < code_.size(); ++at) {
      switch (code_[at]) {
        case '\n': ++line_; break;
        case '{':
          open(trimmed(code_.substr(statement_, at - statement_)));
          statement_ = at + 1;
          break;
        case '}':
          if (!scopes_.empty()) scopes_.pop_back();
          statement_ = at + 1;
          break;
        case ';': statement_ = at + 1; break;
        default: break;
      }
    }
    return std::move(types_);
  }

 private:
  struct Scope {
    bool is_open = false;  // a namespace with a name: others see what is defined here
    std::string prefix;    // of names in it
  };

  void open(std::string_view statement) {
    const Scope outer = scopes_.empty() ? Scope{true, ""} : scopes_.back();
    Scope inner;
    if (outer.is_open) {
      if (statement == "extern") {
        inner = outer;
      } else if (without_word(without_word(statement, "inline"), "namespace") != statement &&
                 statement.find('(') == std::string_view::npos) {
        const std::string_view name = without_word(without_word(statement, "inline"), "namespace");
        inner = {!name.empty(), outer.prefix + std::string(name) + "::"};
      } else {
        const std::string name = type_name(statement);
        if (!name.empty()) types_.push_back({outer.prefix + name, line_});
      }
    }
    scopes_.push_back(std::move(inner));
  }

  // Of the type that a statement defines; empty where it defines none, or one without a name.
  static std::string type_name(std::string_view statement) {
    while (without_word(statement, "template") != statement) {
      statement = behind_brackets(without_word(statement, "template"), '<', '>');
    }
    std::string_view rest = statement;
    for (const std::string_view word : {"enum", "struct", "class", "union"}) {
      rest = without_word(rest, word);
    }
    if (rest == statement) return {};
    rest = behind_brackets(rest, '[', ']');
    if (without_word(rest, "alignas") != rest) {
      rest = behind_brackets(without_word(rest, "alignas"), '(', ')');
    }
    std::size_t end = 0;
    while (end < rest.size() &&
           (is_identifier_char(rest[end]) || rest.substr(end).starts_with("::") ||
            (end > 0 && rest.substr(end - 1).starts_with("::")))) {
      ++end;
    }
    const std::string_view behind = trimmed(rest.substr(end));
    const bool is_type = behind.empty() || behind.starts_with(':') || behind == "final" ||
                         behind.starts_with("final ") || behind.starts_with("final:");
    return is_type ? std::string(rest.substr(0, end)) : std::string();
  }

  std::string_view code_;
  std::size_t line_ = 1;
  std::size_t statement_ = 0;
  std::vector<Scope> scopes_;
  std::vector<TypeDefinition> types_;
};

}  // namespace

std::vector<Violation> check_type_names(const std::vector<SourceFile>& files) {
  std::vector<Violation> violations;
  std::map<std::string, std::string> home;  // of a type: the file that defines it
  for (const SourceFile& file : files) {
    // The emulator stands in for headers of CUDA; no program has both.
    if (!is_source(file.path) || file.path.starts_with("gpu/emulator/")) continue;
    const std::string code = code_only(file.text);
    for (const TypeDefinition& type : TypeScanner(code).scan()) {
      const auto [known, is_new] = home.emplace(type.name, file.path);
      // The alternatives of an #if stand in one file.
      if (is_new || known->second == file.path) continue;
      violations.push_back(
          {file.path, type.line, type.name + " is also defined in " + known->second});
    }
  }
  return violations;
}

namespace {

// The function whose declaration begins in this line; empty: none does.
std::string_view function_in(std::string_view line) {
  const std::size_t open = line.find('(');
  if (line.empty() || open == line.npos || !is_identifier_char(line[0])) return {};
  std::size_t begin = open;
  while (begin > 0 && is_identifier_char(line[begin - 1])) --begin;
  const bool has_type = begin > 0 && (line[begin - 1] == ' ' || line[begin - 1] == '&');
  return has_type && line.find('=') > open ? line.substr(begin, open - begin) : std::string_view();
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

template <class Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end), number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::vector<Violation> check_hidden_functions(const std::vector<SourceFile>& files) {
  std::map<std::string, std::set<std::string, std::less<>>> declared;  // by folder
  for (const SourceFile& file : files) {
    if (!file.path.ends_with(".h")) continue;
    for_each_line(file.text, [&](std::string_view line, std::size_t) {
      declared[folder_of(file.path)].emplace(function_in(line));
    });
  }
  std::vector<Violation> violations;
  for (const SourceFile& file : files) {
    const bool is_alone = file.path.starts_with("tests/") || file.path.starts_with("tools/") ||
                          (file.path.starts_with("gpu/") && !file.path.starts_with("gpu/plan/"));
    if (!file.path.ends_with(".cpp") || is_alone) continue;
    const auto& own = declared[folder_of(file.path)];
    bool is_anonymous = false;
    for_each_line(file.text, [&](std::string_view line, std::size_t number) {
      if (line == "namespace {") is_anonymous = true;
      if (line == "}  // namespace") is_anonymous = false;
      const std::string_view name = is_anonymous ? function_in(line) : std::string_view();
      if (name.empty() || (!own.contains(name) && !declared["core/base"].contains(name))) return;
      violations.push_back({file.path, number, std::string(name) + ": a header has this name"});
    });
  }
  return violations;
}

}  // namespace metronome::testing
