// Where a pattern of a tokenizer.json splits a text.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// A half-open range of bytes, a match of the pattern or what lies between two.
struct SplitSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

// Immutable, and so is safe in several threads.
class SplitPattern {
 public:
  // A regular expression in the syntax that Oniguruma and PCRE2 share. ^ and $ match at lines, as
  // in Oniguruma's Ruby syntax; \s is Unicode's White_Space. Throws std::invalid_argument: what is
  // wrong with it.
  static SplitPattern regex(std::string_view pattern);
  // The text itself; not empty.
  static SplitPattern literal(std::string_view text);

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  // Replaces `spans` by matches and what lies between them, which together are all of `text`
  // (UTF-8). Throws std::runtime_error when a limit of PCRE2 stops the search.
  void split(std::string_view text, std::vector<SplitSpan>& spans) const;

 private:
  struct Compiled;

  SplitPattern();
  void split_at_literal(std::string_view text, std::vector<SplitSpan>& spans) const;
  void split_at_regex(std::string_view text, std::vector<SplitSpan>& spans) const;

  std::unique_ptr<Compiled> compiled_;  // null: a literal
  std::string literal_;
};

}  // namespace metronome
