// SPDX-License-Identifier: Apache-2.0
#include "models/text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "models/text/utf8.h"
#include "system/progress.h"

namespace metronome {
namespace {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;

std::string error_text(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// The characters of a letter behind a backslash, as the items of a class. PCRE2 counts U+180E as a
// space, and digits of all kinds but no marks as parts of words; to Oniguruma, h is no space, and v
// one character.
constexpr std::string_view kSpaces =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWords =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
    R"(\x{1f170}-\x{1f189})";
constexpr std::string_view kWordsAlone = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";  // in no class

std::string items_of(char letter, bool is_in_class) {
  switch (letter) {
    case 's': return std::string(kSpaces);
    case 'w': return std::string(kWords) + std::string(is_in_class ? "" : kWordsAlone);
    case 'h': return "0-9A-Fa-f";
    case 'v': return "\\x0b";
    default: return {};
  }
}

// Rewrites Oniguruma's syntax where PCRE2 has another one, or another meaning: classes in classes
// and their intersections, \s, \w, \h, \v, names of scripts. POSIX classes, \b and comments are
// left as they are.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  std::string translate() {
    std::string result;
    while (!rest_.empty()) {
      if (rest_.front() == '[') {
        result += read_class();
      } else if (rest_.front() == '\\') {
        result += read_escape();
      } else {
        refuse_repeated_interval();
        result += take(1);
      }
    }
    return result;
  }

 private:
  std::string_view take(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  // To Oniguruma, the plus of a{1,3}+ repeats; to PCRE2, it forbids to go back.
  void refuse_repeated_interval() const {
    if (rest_.front() != '{') return;
    const std::size_t end = rest_.find_first_not_of("0123456789,", 1);
    if (end == 1 || end == rest_.npos || !rest_.substr(end).starts_with("}+")) return;
    throw std::invalid_argument("a plus behind " + std::string(rest_.substr(0, end + 1)) +
                                " is not supported");
  }

  // The braces that begin at `begin`, and what is before; `otherwise` where they do not end.
  std::string_view read_braces(std::size_t begin, std::size_t otherwise) {
    const std::size_t end = rest_.find('}', begin);
    return take(end == rest_.npos ? otherwise : end + 1);
  }

  // A property of characters. PCRE2's \p{Han} has the characters that are used with a script, too.
  std::string read_property() {
    std::string property(read_braces(2, 2));
    const std::size_t begin =
        property.starts_with("\\p{^") || property.starts_with("\\P{^") ? 4 : 3;
    if (property.size() < begin + 2) return property;
    std::string of_script = property;
    of_script.insert(begin, "sc:");
    int error = 0;
    PCRE2_SIZE place = 0;
    const Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(of_script.data()), of_script.size(),
                                  PCRE2_UTF | PCRE2_UCP, &error, &place, nullptr));
    return code ? of_script : property;
  }

  bool is_at_posix_class() const {
    if (!rest_.starts_with("[:")) return false;
    const std::size_t end = rest_.find_first_not_of("^abcdefghijklmnopqrstuvwxyz", 2);
    return end != rest_.npos && rest_.substr(end).starts_with(":]");
  }

  // Whether the hyphen here stands before several characters, so that it makes no range.
  bool is_before_set() const {
    if (rest_.size() < 2) return false;
    if (rest_[1] == '[') return true;
    return rest_.size() > 2 && rest_[1] == '\\' &&
           std::string_view("swhvSWHpP").find(rest_[2]) != std::string_view::npos;
  }

  bool is_at_property() const { return rest_.starts_with("\\p{") || rest_.starts_with("\\P{"); }

  std::string read_escape() {
    if (is_at_property()) return read_property();
    for (const std::string_view braced : {"\\x{", "\\o{", "\\k{", "\\g{"}) {
      if (rest_.starts_with(braced)) return std::string(read_braces(braced.size(), 2));
    }
    const std::string_view escape = take(2);
    if (escape.size() < 2 || escape == "\\V") return std::string(escape);
    const bool is_negated = escape[1] >= 'A' && escape[1] <= 'Z';
    const char letter = is_negated ? static_cast<char>(escape[1] - 'A' + 'a') : escape[1];
    const std::string items = items_of(letter, num_open_ > 0);
    if (items.empty()) return std::string(escape);
    return (is_negated ? "[^" : "[") + items + "]";
  }

  // The parts of one operand of an intersection; each matches a character.
  struct Operand {
    std::string items;
    std::vector<std::string> classes;

    std::string text() const {
      std::string result = items.empty() ? "" : "[" + items + "]";
      for (const std::string& part : classes) result += (result.empty() ? "" : "|") + part;
      return result.empty() ? "(?!)" : "(?:" + result + ")";
    }
  };

  std::string read_class() {
    constexpr int kMostNested = 100;
    if (++num_open_ > kMostNested) throw std::invalid_argument("too many classes in classes");
    take(1);
    const bool is_negated = rest_.starts_with('^');
    if (is_negated) take(1);
    std::vector<Operand> operands(1);
    bool is_apart = false;  // what comes is no part of a range, nor at the beginning of a class
    for (bool is_first = true; !rest_.empty(); is_first = false) {
      Operand& operand = operands.back();
      const char c = rest_.front();
      if (c == ']' && !is_first) {
        take(1);
        --num_open_;
        return text_of(operands, is_negated);
      }
      const bool was_apart = std::exchange(is_apart, false);
      if (is_at_posix_class()) {
        operand.items += take(rest_.find(":]") + 2);
      } else if (c == '[') {
        operand.classes.push_back(read_class());
        is_apart = true;
      } else if (rest_.starts_with("&&")) {
        take(2);
        operands.emplace_back();
        is_apart = true;
      } else if (is_at_property()) {
        operand.items += read_property();
        is_apart = true;
      } else if (c == '\\' && rest_.size() > 1) {
        const char letter = rest_[1];
        if (const std::string items = items_of(letter, true); !items.empty()) {
          operand.items += items;
          is_apart = true;
          take(2);
        } else if (letter == 'S' || letter == 'W' || letter == 'H') {
          operand.classes.push_back(read_escape());
          is_apart = true;
        } else {
          operand.items += read_escape();
        }
      } else {
        const bool is_mark = c == '^' || c == '-';
        if (is_mark && (was_apart || (c == '-' && is_before_set()))) operand.items += '\\';
        operand.items += take(1);
      }
    }
    throw std::invalid_argument("missing terminating ] for character class");
  }

  static std::string text_of(const std::vector<Operand>& operands, bool is_negated) {
    if (operands.size() == 1 && operands[0].classes.empty()) {
      return (is_negated ? "[^" : "[") + operands[0].items + "]";
    }
    std::string result;
    for (std::size_t i = 0; i + 1 < operands.size(); ++i) {
      result += "(?=" + operands[i].text() + ")";
    }
    result += operands.back().text();
    return is_negated ? "(?:(?!" + result + ")(?s:.))" : "(?:" + result + ")";
  }

  std::string_view rest_;
  int num_open_ = 0;  // classes
};

}  // namespace

// Patterns come from files of others, so they are interpreted: machine code would need memory that
// is writable and executable.
struct SplitPattern::Compiled {
  Code code;
};

namespace {

// Searches for matches in one text.
class BoundedSearch {
 public:
  BoundedSearch(const pcre2_code* code, std::string_view text, SplitBudget& budget)
      : code_(code),
        text_(text),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        budget_(budget) {
    METRONOME_CHECK(data_ != nullptr && context_ != nullptr, "out of memory");
    constexpr std::uint32_t kMaxKib = 256 << 10;
    pcre2_set_heap_limit(context_.get(), kMaxKib);
  }

  // pcre2_match() from a byte of the text. A search with few steps is free; each that needs more is
  // charged. One search has at most kMost, so that a cancellation is seen soon.
  int match(std::size_t from) {
    constexpr std::int64_t kFree = 256;
    constexpr std::int64_t kGrowth = 16;
    constexpr std::int64_t kMost = kFree * kGrowth * kGrowth * kGrowth * kGrowth;
    for (std::int64_t steps = kFree;; steps *= kGrowth) {
      throw_if_interrupted();
      if (budget_.is_cancelled != nullptr && *budget_.is_cancelled) throw EncodingCancelled();
      pcre2_set_match_limit(context_.get(), static_cast<std::uint32_t>(steps));
      const int rc = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                                 from, PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
      if (rc != PCRE2_ERROR_MATCHLIMIT || steps == kMost) return rc;
      budget_.steps_left -= kGrowth * steps;  // of the next try
      if (budget_.steps_left < 0) return rc;
    }
  }
  // Begin and end of the last match.
  const PCRE2_SIZE* found() const { return pcre2_get_ovector_pointer(data_.get()); }

 private:
  const pcre2_code* code_;
  std::string_view text_;
  MatchData data_;
  MatchContext context_;
  SplitBudget& budget_;
};

}  // namespace

// Patterns come from files of others. A match of a known tokenizer takes some dozen steps of PCRE2,
// which are free, and a few per character in a long run of spaces.
SplitBudget::SplitBudget(std::size_t num_bytes, const std::atomic<bool>* cancelled)
    : steps_left(2'000'000 + 64 * static_cast<std::int64_t>(num_bytes)), is_cancelled(cancelled) {}

SplitPattern::SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

// PCRE2 notices a pattern that recurses where it stands, such as (?R), only when it meets a text on
// which it does; Oniguruma refuses it.
void SplitPattern::refuse_endless_recursion(const SplitPattern& pattern) {
  for (const std::string_view text : {std::string_view(), std::string_view(" a1\n")}) {
    SplitBudget budget(text.size());
    BoundedSearch search(pattern.compiled_->code.get(), text, budget);
    if (search.match(0) == PCRE2_ERROR_RECURSELOOP) {
      throw std::invalid_argument("the pattern recurses without an end");
    }
  }
}

SplitPattern SplitPattern::regex(std::string_view pattern) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  METRONOME_CHECK(context != nullptr, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const std::string spelt = Translator(pattern).translate();
  int error = 0;
  PCRE2_SIZE place = 0;
  SplitPattern result;
  result.compiled_ = std::make_unique<Compiled>();
  result.compiled_->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelt.data()), spelt.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &place, context.get()));
  if (!result.compiled_->code) throw std::invalid_argument(error_text(error));
  refuse_endless_recursion(result);
  return result;
}

SplitPattern SplitPattern::literal(std::string_view text) {
  METRONOME_CHECK(!text.empty(), "a literal to split at has characters");
  SplitPattern result;
  result.literal_ = text;
  return result;
}

void SplitPattern::split(std::string_view text, std::vector<SplitSpan>& spans,
                         SplitBudget& budget) const {
  spans.clear();
  compiled_ ? split_at_regex(text, spans, budget) : split_at_literal(text, spans);
  const std::size_t end = spans.empty() ? 0 : spans.back().end;
  if (end < text.size()) spans.push_back({end, text.size(), false});
}

void SplitPattern::split_at_literal(std::string_view text, std::vector<SplitSpan>& spans) const {
  std::size_t end = 0;
  for (std::size_t begin; (begin = text.find(literal_, end)) != text.npos;) {
    if (begin > end) spans.push_back({end, begin, false});
    end = begin + literal_.size();
    spans.push_back({begin, end, true});
  }
}

void SplitPattern::split_at_regex(std::string_view text, std::vector<SplitSpan>& spans,
                                  SplitBudget& budget) const {
  BoundedSearch search(compiled_->code.get(), text, budget);
  std::size_t end = 0;              // of the last match
  std::optional<std::size_t> last;  // the same; empty before the first match
  for (std::size_t from = 0; from <= text.size();) {
    const int rc = search.match(from);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) throw std::runtime_error("cannot split the text: " + error_text(rc));
    const PCRE2_SIZE* match = search.found();
    const std::size_t begin = match[0];
    if (match[1] <= begin && last == begin) {
      // An empty match right after the last match does not count. Advance by one character.
      from += from < text.size() ? read_utf8(text.substr(from)).num_bytes : 1;
      continue;
    }
    if (begin > end) spans.push_back({end, begin, false});
    end = match[1];
    last = end;
    from = end;
    spans.push_back({begin, end, true});
  }
}

}  // namespace metronome
