// SPDX-License-Identifier: Apache-2.0
#include "tests/expected.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/places.h"

namespace fs = std::filesystem;

namespace metronome::testing {
namespace {

constexpr const char* kUpdate = "METRONOME_UPDATE_GOLDENS";

bool is_updating() {
  const char* value = std::getenv(kUpdate);
  return value != nullptr && std::string_view(value) == "1";
}

std::string first_difference(const std::string& expected, const std::string& actual) {
  std::istringstream wanted(expected);
  std::istringstream got(actual);
  for (int line = 1;; ++line) {
    std::string a;
    std::string b;
    const bool has_a = static_cast<bool>(std::getline(wanted, a));
    const bool has_b = static_cast<bool>(std::getline(got, b));
    if (!has_a && !has_b) return "differs in the last line break";
    if (has_a && has_b && a == b) continue;
    return "differs in line " + std::to_string(line) + "\n  expected: " + (has_a ? a : "(end)") +
           "\n  actual:   " + (has_b ? b : "(end)");
  }
}

void append_indented(std::string_view text, std::string_view indent, std::string& to) {
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) to.append(indent).append(text.substr(0, end));
    to += '\n';
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string difference_from(const std::string& path, const std::string& actual) {
  if (!fs::exists(path)) return "is missing";
  const std::string expected = read_text_file(path);
  return expected == actual ? "" : first_difference(expected, actual);
}

void check_expected(const std::string& name, const std::string& actual) {
  const fs::path path = fs::path(source_dir()) / "tests/expected" / name;
  if (is_updating()) {
    fs::create_directories(path.parent_path());
    std::ofstream out(path, std::ios::binary);
    out << actual << std::flush;
    INFO(path);
    CHECK(out.good());
    WARN("wrote tests/expected/" << name);
    return;
  }
  const std::string difference = difference_from(path.string(), actual);
  INFO("tests/expected/" << name << " " << difference);
  INFO("If the new text is right: " << kUpdate << "=1 rewrites the file.");
  const bool is_as_expected = difference.empty();
  CHECK(is_as_expected);
}

void Answers::add(std::string_view question, std::string_view answer) {
  if (!text_.empty()) text_ += '\n';
  if (question.ends_with('\n')) question.remove_suffix(1);
  append_indented(question, "", text_);
  append_indented(answer.empty() ? "(nothing)" : answer, "    ", text_);
}

Answers::~Answers() noexcept(false) {
  // A test that failed half-way has said what is wrong.
  if (std::uncaught_exceptions() == 0) check_expected(name_, text_);
}

std::string change_text(std::string_view part, std::string_view by) {
  if (by.empty()) return "without " + std::string(part);
  return std::string(part) + " -> " + std::string(by);
}

std::string replaced(std::string text, std::string_view part, std::string_view by) {
  const std::size_t at = text.find(part);
  INFO("part: " << part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), by);
}

std::string with_name_for(std::string_view part, std::string_view name, std::string text) {
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += name.size()) {
    text.replace(at, part.size(), name);
  }
  return text;
}

}  // namespace metronome::testing
