// SPDX-License-Identifier: Apache-2.0
// Packages that tools fetch: by hash, so that nobody can put others in their place.
#include <algorithm>

#include "tests/house/tidy.h"

namespace metronome::testing {
namespace {

constexpr std::string_view kPipCalls[] = {"\"pip\",", "bin/pip "};
constexpr std::string_view kHash = "--hash=sha256:";
constexpr std::size_t kCallLines = 5;  // of one call in a Python tool

std::string lines_from(std::string_view text, std::size_t begin, std::size_t count) {
  std::size_t end = begin;
  for (; count > 0 && end < text.size(); --count) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  }
  return std::string(text.substr(begin, end - begin));
}

std::size_t line_number(std::string_view text, std::size_t offset) {
  return 1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + offset, '\n'));
}

bool is_pinned(std::string_view requirement) {
  std::size_t num_hashes = 0;
  for (std::size_t begin = 0, end = 0; begin < requirement.size(); begin = end + 1) {
    end = std::min(requirement.find(' ', begin), requirement.size());
    const std::string_view word = requirement.substr(begin, end - begin);
    if (word.empty() || word == "\\") continue;
    if (begin == 0 && word.find("==") != std::string_view::npos) continue;
    if (!word.starts_with(kHash) || word.size() != kHash.size() + 64) return false;
    ++num_hashes;
  }
  return num_hashes > 0;
}

}  // namespace

std::vector<Violation> check_pip(const SourceFile& file) {
  std::vector<Violation> violations;
  if (!file.path.starts_with("tools/")) return violations;
  for (const std::string_view call : kPipCalls) {
    for (std::size_t at = file.text.find(call); at != std::string::npos;
         at = file.text.find(call, at + 1)) {
      const std::string lines = lines_from(file.text, at, kCallLines);
      if (lines.find("--require-hashes") != std::string::npos) continue;
      if (lines.find("--no-index") != std::string::npos) continue;  // it fetches nothing
      violations.push_back({file.path, line_number(file.text, at), "pip without --require-hashes"});
    }
  }
  return violations;
}

std::vector<Violation> check_requirements(const SourceFile& file) {
  std::vector<Violation> violations;
  if (!file.path.starts_with("tools/requirements/") || !file.path.ends_with(".txt")) return {};
  std::string requirement;
  std::size_t line = 1, first = 1;
  for (const char c : file.text) {
    const bool continues = requirement.ends_with('\\');
    if (c != '\n') {
      if (requirement.empty()) first = line;
      requirement += c;
      continue;
    }
    ++line;
    if (continues) {
      requirement.back() = ' ';
      continue;
    }
    if (!is_pinned(requirement)) {
      violations.push_back({file.path, first, "allowed: NAME==VERSION with --hash=sha256:..."});
    }
    requirement.clear();
  }
  return violations;
}

}  // namespace metronome::testing
