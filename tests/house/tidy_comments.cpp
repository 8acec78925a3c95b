// SPDX-License-Identifier: Apache-2.0
// The rule that a comment names what it is about: it has a meaning for who reads it alone.
#include <algorithm>
#include <cctype>

#include "tests/house/tidy.h"

namespace metronome::testing {
namespace {

// First words that point to another comment or to a declaration, and name nothing themselves.
constexpr std::string_view kPointers[] = {
    "Of this", "Of these",    "Of those", "Of them", "Of it",    "Of one",      "Of each",
    "Of both", "Of the same", "Of all",   "Those",   "That of",  "All of them", "None of them",
    "These,",  "Both of",     "As above", "Ditto",   "Likewise,"};

// Behind "The same" these begin no noun: "The same for a text" says nothing, "The same seed" does.
constexpr std::string_view kPrepositions[] = {
    "of",     "for",   "from",  "with",   "without", "within", "in",     "as",    "at",   "by",
    "on",     "to",    "up",    "under",  "over",    "behind", "before", "after", "but",  "through",
    "beside", "where", "while", "unless", "when",    "if",     "or",     "and",   "until"};

// The whole of a comment, without its full stop.
constexpr std::string_view kEmptyWords[] = {"the same", "both", "likewise", "ditto", "as above"};

bool begins_with_words(std::string_view text, std::string_view words) {
  return text.starts_with(words) &&
         (text.size() == words.size() || !is_identifier_char(text[words.size()]));
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return result;
}

// The first words of a comment if they name nothing; else empty.
std::string_view stub_of(std::string_view comment) {
  const bool is_sentence = comment.ends_with('.');
  const std::string whole = lower(comment.substr(0, comment.size() - (is_sentence ? 1 : 0)));
  if (std::find(std::begin(kEmptyWords), std::end(kEmptyWords), whole) != std::end(kEmptyWords)) {
    return comment;
  }
  for (const std::string_view pointer : kPointers) {
    if (begins_with_words(comment, pointer)) return pointer;
  }
  constexpr std::string_view kSame = "The same";
  if (!begins_with_words(comment, kSame)) return {};
  const std::string_view rest = comment.substr(kSame.size());
  if (rest.empty() || rest.front() != ' ') return kSame;
  const bool has_no_noun = std::any_of(
      std::begin(kPrepositions), std::end(kPrepositions),
      [&](std::string_view preposition) { return begins_with_words(rest.substr(1), preposition); });
  return has_no_noun ? kSame : std::string_view();
}

}  // namespace

std::vector<Violation> check_comments(const SourceFile& file) {
  if (!is_source(file.path) && !file.path.ends_with(".js")) return {};
  std::vector<Violation> violations;
  const std::string code = without_comments(file.text);
  std::size_t before = std::string::npos;  // column of the comment in the line before
  std::size_t line = 1;
  for (std::size_t begin = 0; begin < code.size(); ++line) {
    const std::size_t end = std::min(code.find('\n', begin), code.size());
    const std::string_view text = std::string_view(file.text).substr(begin, end - begin);
    std::size_t column = text.find("//");
    while (column != std::string::npos && code[begin + column] != ' ') {
      column = text.find("//", column + 1);
    }
    const bool goes_on = column == before;
    before = column;
    begin = end + 1;
    if (column == std::string::npos || goes_on) continue;
    const std::size_t first = std::min(text.find_first_not_of("/< ", column), text.size());
    const std::string_view stub = stub_of(trimmed(text.substr(first)));
    if (stub.empty()) continue;
    violations.push_back({file.path, line,
                          "a comment begins with '" + std::string(stub) +
                              "', which names nothing: say what the thing is or does"});
  }
  return violations;
}

}  // namespace metronome::testing
