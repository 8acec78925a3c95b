// SPDX-License-Identifier: Apache-2.0
// Texts that tests expect: tests/expected/NAME. METRONOME_UPDATE_GOLDENS=1 rewrites those that the
// tests which run produce; read the difference before you commit it. Recorded decisions
// (tests/goldens) come from real engines and are never rewritten.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace metronome::testing {

// Fails the test case where `actual` is not the content of tests/expected/`name`, and shows the
// first line that differs. Call it once for each name.
void check_expected(const std::string& name, const std::string& actual);

// How the file `path` differs from `actual`: where first, or that there is no such file. Empty when
// it does not.
std::string difference_from(const std::string& path, const std::string& actual);

// One expected text of many questions and what the program answers to each, in this form:
//
//   QUESTION
//       ANSWER
//
// A question or an answer may have several lines. A line break at an answer's end is an empty line.
// The destructor compares: create one per test case, outside of sections.
class Answers {
 public:
  explicit Answers(std::string name) : name_(std::move(name)) {}
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  ~Answers() noexcept(false);

  void add(std::string_view question, std::string_view answer);

 private:
  std::string name_;
  std::string text_;
};

// "PART -> BY", or "without PART": a question about a text that is changed so.
std::string change_text(std::string_view part, std::string_view by);

// `text` with `part`, which it must have, replaced where it is first: one change of a valid text.
std::string replaced(std::string text, std::string_view part, std::string_view by);

// `text` with `part` replaced wherever it is, to show what differs between runs: a folder's path.
std::string with_name_for(std::string_view part, std::string_view name, std::string text);

}  // namespace metronome::testing
