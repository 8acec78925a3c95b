// SPDX-License-Identifier: Apache-2.0
#include "serve/server/pattern_text.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "models/text/utf8.h"

namespace metronome {

// Characters of a pattern's class.
struct CharRange {
  char32_t first, last;
};
using CharSet = std::vector<CharRange>;

namespace {

constexpr std::int64_t kMostTimes = 1000;   // of a quantifier
constexpr int kMostNested = 64;             // groups in groups
constexpr std::size_t kMostPattern = 2000;  // bytes
constexpr std::int64_t kMostChars = 800;    // of an example
constexpr std::int64_t kMostSteps = 200'000;
constexpr int kMostDepth = 1000;  // of a search, about one for each character
constexpr char32_t kLast = 0x10ffff;

bool has(const CharSet& set, char32_t c) {
  return std::any_of(set.begin(), set.end(),
                     [c](const CharRange& range) { return c >= range.first && c <= range.last; });
}

CharSet inverted(CharSet set) {
  std::sort(set.begin(), set.end(),
            [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
  CharSet result;
  char32_t next = 0;
  for (const CharRange& range : set) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = std::max<char32_t>(next, range.last + 1);
  }
  if (next <= kLast) result.push_back({next, kLast});
  return result;
}

const CharSet kDigitChars = {{'0', '9'}};
const CharSet kWord = {{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}};
const CharSet kSpaces = {
    {' ', ' '}, {'\t', '\r'}, {0xa0, 0xa0}, {0x2028, 0x2029}, {0xfeff, 0xfeff}};
const CharSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> points;
  while (!text.empty()) {
    const Utf8Char next = read_utf8(text);
    points.push_back(next.code_point);
    text.remove_prefix(next.num_bytes);
  }
  return points;
}

}  // namespace

// A part of the pattern, found `least` to `most` times.
struct SchemaPattern::Node {
  enum class Kind : std::uint8_t { Chars, Begin, End, Group };

  Kind kind = Kind::Group;
  CharSet chars;                                // of Chars
  std::vector<std::vector<Node>> alternatives;  // of Group: sequences
  std::int64_t least = 1, most = 1;
};

namespace {

using Node = SchemaPattern::Node;
using Sequence = std::vector<Node>;

// Reads a pattern.
class Reader {
 public:
  explicit Reader(std::string_view pattern) : points_(code_points(pattern)) {
    if (pattern.size() > kMostPattern) fail("is too long");
  }

  Node read() {
    Node root = group();
    if (!is_over()) fail("has a ) without its (");
    return root;
  }

 private:
  [[noreturn]] static void fail(const std::string& what) { throw std::runtime_error(what); }
  bool is_over() const { return at_ == points_.size(); }
  char32_t peek() const { return is_over() ? 0 : points_[at_]; }
  char32_t next() {
    if (is_over()) fail("ends too early");
    return points_[at_++];
  }
  bool takes(char32_t c) {
    if (is_over() || peek() != c) return false;
    ++at_;
    return true;
  }

  Node group() {
    if (++depth_ > kMostNested) fail("has too many groups in groups");
    Node node;
    node.alternatives.emplace_back();
    while (!is_over() && peek() != ')') {
      if (takes('|')) {
        node.alternatives.emplace_back();
      } else {
        node.alternatives.back().push_back(quantified());
      }
    }
    --depth_;
    return node;
  }

  Node quantified() {
    Node node = atom();
    if (is_over()) return node;
    const std::size_t before = at_;
    switch (next()) {
      case '*': node.least = 0, node.most = kMostTimes; break;
      case '+': node.most = kMostTimes; break;
      case '?': node.least = 0; break;
      case '{':
        if (!reads_times(node)) {
          at_ = before;
          return node;
        }
        break;
      default: at_ = before; return node;
    }
    takes('?');  // as few as possible: the same texts
    if (node.kind == Node::Kind::Begin || node.kind == Node::Kind::End) fail("repeats ^ or $");
    return node;
  }

  // "3}", "3,}" or "3,5}". Anything else is a character {.
  bool reads_times(Node& node) {
    const std::optional<std::int64_t> least = number();
    if (!least) return false;
    std::int64_t most = *least;
    if (takes(',')) most = number().value_or(kMostTimes);
    if (!takes('}')) return false;
    if (*least > kMostTimes || most < *least) fail("repeats too often");
    node.least = *least;
    node.most = std::min(most, kMostTimes);
    return true;
  }

  std::optional<std::int64_t> number() {
    std::optional<std::int64_t> value;
    while (peek() >= '0' && peek() <= '9') {
      value = std::min<std::int64_t>(10 * value.value_or(0) + (next() - '0'), 1'000'000);
    }
    return value;
  }

  Node atom() {
    Node node;
    node.kind = Node::Kind::Chars;
    const char32_t c = next();
    switch (c) {
      case '^': node.kind = Node::Kind::Begin; break;
      case '$': node.kind = Node::Kind::End; break;
      case '.': node.chars = inverted(kLineEnds); break;
      case '[': node.chars = bracket(); break;
      case '(': return parenthesis();
      case '\\': node.chars = escape(false); break;
      case '*':
      case '+':
      case '?': fail("repeats nothing");
      default: node.chars = {{c, c}};
    }
    return node;
  }

  Node parenthesis() {
    if (takes('?')) {
      const bool is_named = takes('<');
      if (is_named && (peek() == '=' || peek() == '!')) fail("looks behind");
      if (is_named) {
        while (next() != '>') {
        }
      } else if (!takes(':')) {
        fail("looks ahead, or has flags");
      }
    }
    Node node = group();
    if (!takes(')')) fail("has a ( without its )");
    return node;
  }

  CharSet bracket() {
    const bool is_inverted = takes('^');
    CharSet set;
    while (!takes(']')) {
      CharSet first = bracket_char();
      if (peek() == '-' && at_ + 1 < points_.size() && points_[at_ + 1] != ']' &&
          first.size() == 1 && first[0].first == first[0].last) {
        ++at_;
        const CharSet last = bracket_char();
        if (last.size() != 1 || last[0].first < first[0].first) fail("has a wrong range");
        first[0].last = last[0].last;
      }
      set.insert(set.end(), first.begin(), first.end());
    }
    return is_inverted ? inverted(set) : set;
  }

  CharSet bracket_char() {
    const char32_t c = next();
    if (c == '\\') return escape(true);
    return {{c, c}};
  }

  CharSet escape(bool is_in_bracket) {
    const char32_t c = next();
    switch (c) {
      case 'd': return kDigitChars;
      case 'D': return inverted(kDigitChars);
      case 'w': return kWord;
      case 'W': return inverted(kWord);
      case 's': return kSpaces;
      case 'S': return inverted(kSpaces);
      case 'n': return {{'\n', '\n'}};
      case 'r': return {{'\r', '\r'}};
      case 't': return {{'\t', '\t'}};
      case 'f': return {{'\f', '\f'}};
      case 'v': return {{'\v', '\v'}};
      case 'x': return hexadecimal(2);
      case 'u': return hexadecimal(4);
      default: break;
    }
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == '0' || (c == 'b' && is_in_bracket)) fail("names a control character");
    if (is_letter || (c >= '1' && c <= '9')) {
      std::string name = "has a \\";
      append_utf8(c, name);
      fail(name);
    }
    return {{c, c}};
  }

  CharSet hexadecimal(int num_digits) {
    char32_t value = 0;
    for (int i = 0; i < num_digits; ++i) {
      const char32_t c = next();
      const char32_t low = c | 0x20;
      if (c >= '0' && c <= '9') {
        value = 16 * value + (c - '0');
      } else if (low >= 'a' && low <= 'f') {
        value = 16 * value + (low - 'a' + 10);
      } else {
        fail("has a wrong \\x or \\u");
      }
    }
    return {{value, value}};
  }

  std::vector<char32_t> points_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// ---- Examples ----

// Writes a text; a part that may be there more often is there `more` times beyond its least.
class Example {
 public:
  Example(std::int64_t more, std::uint64_t seed) : more_(more), seed_(seed) {}

  // False: it cannot be written, or is too long.
  bool add(const Node& node) {
    const std::int64_t times = std::min(node.most, node.least + more_);
    for (std::int64_t i = 0; i < times; ++i) {
      if (!add_once(node)) return false;
    }
    return true;
  }

  const std::u32string& text() const { return text_; }

 private:
  std::uint64_t draw() { return mix64(seed_ ^ mix64(++num_draws_)); }

  bool add_once(const Node& node) {
    if (static_cast<std::int64_t>(text_.size()) > kMostChars) return false;
    switch (node.kind) {
      case Node::Kind::Chars: return add_char(node.chars);
      case Node::Kind::Begin:
      case Node::Kind::End: return true;
      case Node::Kind::Group: break;
    }
    const Sequence& chosen = node.alternatives[draw() % node.alternatives.size()];
    return std::all_of(chosen.begin(), chosen.end(),
                       [this](const Node& part) { return add(part); });
  }

  // A letter or digit if one is allowed, else a printable character, else the first.
  bool add_char(const CharSet& set) {
    if (set.empty()) return false;
    const std::u32string nice = U"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const std::u32string others = U" -_.,:;/@#+=~!$%&*()[]{}<>?|^'`\"\\";
    for (const std::u32string& list : {nice, others}) {
      std::u32string allowed;
      for (const char32_t c : list) {
        if (has(set, c)) allowed += c;
      }
      if (allowed.empty()) continue;
      text_ += allowed[draw() % allowed.size()];
      return true;
    }
    for (const CharRange& range : set) {
      // Half of a pair of UTF-16 is no character.
      const char32_t c = range.first >= 0xd800 && range.first <= 0xdfff ? 0xe000 : range.first;
      if (c > range.last) continue;
      text_ += c;
      return true;
    }
    return false;
  }

  std::int64_t more_;
  std::uint64_t seed_;
  std::uint64_t num_draws_ = 0;
  std::u32string text_;
};

// ---- Search ----

// Tries all ways through a pattern, one after the other.
class Search {
 public:
  explicit Search(const std::vector<char32_t>& text) : text_(text) {}

  bool finds(const Node& root) {
    for (std::size_t i = 0; i <= text_.size(); ++i) {
      if (goes(root, 0, i, [](std::size_t) { return true; })) return true;
    }
    return false;
  }

 private:
  using Then = std::function<bool(std::size_t)>;

  // Whether the node, found `done` times before `at`, can be followed by `then`.
  bool goes(const Node& node, std::int64_t done, std::size_t at, const Then& then) {
    if (++num_steps_ > kMostSteps || depth_ > kMostDepth) return false;
    ++depth_;
    const bool result = (done < node.most && once(node, at,
                                                  [&](std::size_t end) {
                                                    // A part that takes nothing repeats without an
                                                    // end.
                                                    if (end == at && done >= node.least)
                                                      return false;
                                                    return goes(node, done + 1, end, then);
                                                  })) ||
                        (done >= node.least && then(at));
    --depth_;
    return result;
  }

  bool once(const Node& node, std::size_t at, const Then& then) {
    switch (node.kind) {
      case Node::Kind::Begin: return at == 0 && then(at);
      case Node::Kind::End: return at == text_.size() && then(at);
      case Node::Kind::Chars:
        return at < text_.size() && has(node.chars, text_[at]) && then(at + 1);
      case Node::Kind::Group: break;
    }
    return std::any_of(node.alternatives.begin(), node.alternatives.end(),
                       [&](const Sequence& sequence) { return follows(sequence, 0, at, then); });
  }

  bool follows(const Sequence& sequence, std::size_t part, std::size_t at, const Then& then) {
    if (part == sequence.size()) return then(at);
    return goes(sequence[part], 0, at,
                [&](std::size_t end) { return follows(sequence, part + 1, end, then); });
  }

  const std::vector<char32_t>& text_;
  std::int64_t num_steps_ = 0;
  int depth_ = 0;
};

}  // namespace

SchemaPattern::SchemaPattern(std::string_view pattern)
    : root_(std::make_unique<Node>(Reader(pattern).read())) {}
SchemaPattern::~SchemaPattern() = default;
SchemaPattern::SchemaPattern(SchemaPattern&&) noexcept = default;

bool SchemaPattern::finds(std::string_view text) const {
  return Search(code_points(text)).finds(*root_);
}

std::optional<std::string> SchemaPattern::example(std::int64_t least, std::int64_t most,
                                                  std::uint64_t seed) const {
  std::int64_t more = 0;
  for (std::uint64_t attempt = 0; attempt < 64; ++attempt) {
    Example example(more, seed + attempt);
    if (!example.add(*root_)) return std::nullopt;
    const std::u32string& text = example.text();
    const auto size = static_cast<std::int64_t>(text.size());
    if (size < least) ++more;
    if (size > most) more = std::max<std::int64_t>(more - 1, 0);
    if (size > most) continue;
    const auto room =
        static_cast<std::size_t>(std::clamp<std::int64_t>(least - size, 0, kMostChars));
    const std::u32string others(room, U'a');
    for (const std::u32string& whole : {text + others, others + text}) {
      std::string found;
      for (const char32_t c : whole) append_utf8(c, found);
      if (static_cast<std::int64_t>(whole.size()) >= least && finds(found)) return found;
      if (room == 0) break;
    }
  }
  return std::nullopt;
}

}  // namespace metronome
