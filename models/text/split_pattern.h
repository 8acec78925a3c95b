// SPDX-License-Identifier: Apache-2.0
// Splits a text by a pattern of a tokenizer.json.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// A half-open byte range: a match of the pattern, or the text between two matches.
struct SplitSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

// An encoding that nobody wants any more.
struct EncodingCancelled {};

// The cost that all searches in a text may have together.
struct SplitBudget {
  explicit SplitBudget(std::size_t num_bytes, const std::atomic<bool>* cancelled = nullptr);

  std::int64_t steps_left;
  const std::atomic<bool>* is_cancelled;  // null: never
};

// Immutable and therefore thread-safe.
class SplitPattern {
 public:
  // A regular expression in the syntax common to Oniguruma and PCRE2. ^ and $ match at lines, as in
  // Oniguruma's Ruby syntax. \s is Unicode's White_Space. Throws std::invalid_argument with the
  // error.
  static SplitPattern regex(std::string_view pattern);
  // Matches `text` literally; not empty.
  static SplitPattern literal(std::string_view text);

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  // Replaces `spans` by the matches and the text between them, which together cover `text` (UTF-8).
  // Throws std::runtime_error when a search takes more steps or memory than the budget has,
  // EncodingCancelled after that, and Interrupted after Ctrl-C or SIGTERM.
  void split(std::string_view text, std::vector<SplitSpan>& spans, SplitBudget& budget) const;
  void split(std::string_view text, std::vector<SplitSpan>& spans) const {
    SplitBudget budget(text.size());
    split(text, spans, budget);
  }

 private:
  struct Compiled;

  SplitPattern();
  static void refuse_endless_recursion(const SplitPattern& pattern);
  void split_at_literal(std::string_view text, std::vector<SplitSpan>& spans) const;
  void split_at_regex(std::string_view text, std::vector<SplitSpan>& spans,
                      SplitBudget& budget) const;

  std::unique_ptr<Compiled> compiled_;  // null for a literal
  std::string literal_;
};

}  // namespace metronome
