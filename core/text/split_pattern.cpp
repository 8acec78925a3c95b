#include "core/text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/base/error.h"
#include "core/base/progress.h"
#include "core/text/utf8.h"

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

// PCRE2 counts U+180E as a space; current Unicode does not. So \s is replaced by a list.
std::string with_unicode_spaces(std::string_view pattern) {
  constexpr std::string_view kSpaces =
      R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
  std::string result;
  int class_depth = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') ++class_depth;
      if (c == ']' && class_depth > 0) --class_depth;
      result += c;
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's' && class_depth > 0) {
      result += kSpaces;
    } else if ((escaped == 's' || escaped == 'S') && class_depth == 0) {
      result += escaped == 's' ? "[" : "[^";
      result += kSpaces;
      result += ']';
    } else {
      result += c;
      result += escaped;
    }
  }
  return result;
}

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

SplitPattern SplitPattern::regex(std::string_view pattern) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  METRONOME_CHECK(context != nullptr, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const std::string spelt = with_unicode_spaces(pattern);
  int error = 0;
  PCRE2_SIZE place = 0;
  SplitPattern result;
  result.compiled_ = std::make_unique<Compiled>();
  result.compiled_->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelt.data()), spelt.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &place, context.get()));
  if (!result.compiled_->code) throw std::invalid_argument(error_text(error));
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
