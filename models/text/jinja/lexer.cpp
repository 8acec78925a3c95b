// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/lexer.h"

#include <algorithm>
#include <cmath>

#include "core/base/number_chars.h"
#include "models/text/jinja/characters.h"
#include "models/text/utf8.h"

namespace metronome::jinja {
namespace {

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c) { return is_name_start(c) || is_digit_char(c); }

std::string with_line_feeds(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
      continue;
    }
    result += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  return result;
}

// The bytes of white space that a text begins with.
std::size_t num_space_bytes(std::string_view text) {
  return text.size() - stripped(text, nullptr, true, false).size();
}

int hex_value(char c) {
  if (is_digit_char(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Python's unicode-escape, on a literal whose other characters stand for themselves.
class Unescaper {
 public:
  Unescaper(std::string_view text, int line) : text_(text), line_(line) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (text_[at_] != '\\') {
        result_ += text_[at_++];
        continue;
      }
      ++at_;
      escape();
    }
    return std::move(result_);
  }

 private:
  void escape() {
    constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeant = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at_];
    if (const std::size_t known = kLetters.find(c); known != kLetters.npos) {
      result_ += kMeant[known];
      ++at_;
    } else if (c == '\n') {
      ++at_;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++at_;
      hex(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c >= '0' && c <= '7') {
      octal();
    } else if (c == 'N') {
      throw SyntaxError(line_,
                        "an escape \\N in a string is not supported; allowed: \\u and four digits");
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      // jinja2 writes such a character as an escape of its own first, and the backslash before it
      // then escapes that one's.
      const Utf8Char next = read_utf8(text_.substr(at_));
      append_ascii_escape(next.code_point);
      at_ += next.num_bytes;
    } else {
      result_ += '\\';  // not an escape
    }
  }

  void append_ascii_escape(char32_t c) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const int num_digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    result_ += num_digits == 2 ? "\\x" : num_digits == 4 ? "\\u" : "\\U";
    for (int i = num_digits - 1; i >= 0; --i) result_ += kDigits[c >> (4 * i) & 15];
  }

  void hex(int num_digits) {
    char32_t c = 0;
    for (int i = 0; i < num_digits; ++i) {
      const int digit = at_ < text_.size() ? hex_value(text_[at_]) : -1;
      if (digit < 0) throw SyntaxError(line_, "a string has an incomplete escape");
      c = c << 4 | static_cast<char32_t>(digit);
      ++at_;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
      throw SyntaxError(line_, "a string has an escape that is not a character");
    }
    append_utf8(c, result_);
  }

  void octal() {
    char32_t c = 0;
    for (int i = 0; i < 3 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
      c = c * 8 + static_cast<char32_t>(text_[at_++] - '0');
    }
    append_utf8(c, result_);
  }

  std::string_view text_;
  int line_;
  std::size_t at_ = 0;
  std::string result_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_line_feeds(source)) {
    // Without keep_trailing_newline, one line break at the end goes.
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) read_root();
    add(TokenType::End);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(const std::string& message) const {
    throw SyntaxError(line_, message);
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  void add(TokenType type, std::string text = {}) {
    Token token;
    token.type = type;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  void pass(std::size_t num_bytes) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ +=
        static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(num_bytes), '\n'));
    at_ += num_bytes;
    starts_line_ = num_bytes > 0 ? source_[at_ - 1] == '\n' : starts_line_;
  }

  // Text up to a tag, which may strip it.
  void add_data(std::string_view text, char sign, bool is_variable) {
    std::string_view kept = text;
    if (sign == '-') {
      kept = stripped(text, nullptr, false, true);
    } else if (sign != '+' && !is_variable) {
      const std::size_t line = text.rfind('\n') + 1;
      const std::string_view indent = text.substr(line);
      const bool is_blank = !indent.empty() && num_space_bytes(indent) == indent.size();
      if ((line > 0 || starts_line_) && is_blank) kept = text.substr(0, line);
    }
    if (!kept.empty()) add(TokenType::Data, std::string(kept));
  }

  void read_root() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == source_.npos || tag + 1 >= source_.size()) {
        add(TokenType::Data, source_.substr(at_));
        return pass(source_.size() - at_);
      }
      const char next = source_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
    }
    const char kind = source_[tag + 1];
    const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const bool has_sign = sign == '-' || sign == '+';
    add_data(text, sign, kind == '{');
    pass(text.size());
    if (kind == '%') {
      if (const std::size_t size = raw_begin_size(); size > 0) return read_raw(size);
    }
    const std::size_t begin = has_sign ? 3 : 2;
    if (kind != '#') add(kind == '{' ? TokenType::VariableBegin : TokenType::BlockBegin);
    pass(begin);
    kind == '#' ? read_comment() : read_tag(kind == '{');
  }

  // {% raw %}
  std::size_t raw_begin_size() const { return word_tag_size(rest(), "raw", false); }

  // The bytes of a tag of one word at the start of the text; 0: there is none.
  static std::size_t word_tag_size(std::string_view text, std::string_view word, bool trims) {
    std::size_t at = 2;
    if (!text.starts_with("{%")) return 0;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    at += num_space_bytes(text.substr(at));
    if (!text.substr(at).starts_with(word)) return 0;
    at += word.size();
    at += num_space_bytes(text.substr(at));
    if (text.substr(at).starts_with("-%}")) return at + 3 + num_space_bytes(text.substr(at + 3));
    if (trims && text.substr(at).starts_with("+%}")) return at + 3;
    if (!text.substr(at).starts_with("%}")) return 0;
    at += 2;
    return at + (trims && at < text.size() && text[at] == '\n' ? 1 : 0);
  }

  void read_raw(std::size_t begin_size) {
    pass(begin_size);
    for (std::size_t end = at_; (end = source_.find("{%", end)) != source_.npos; ++end) {
      const std::string_view tag = std::string_view(source_).substr(end);
      const std::size_t size = word_tag_size(tag, "endraw", true);
      if (size == 0) continue;
      add_data(std::string_view(source_).substr(at_, end - at_), tag[2], false);
      return pass(end - at_ + size);
    }
    fail_here("a raw block has no end; allowed: {% endraw %}");
  }

  void read_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == source_.npos) fail_here("a comment has no end; allowed: #}");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    pass(end + 2 - at_);
    end_tag(sign, true);
  }

  // Skips the white space that a tag's end takes from the text behind it.
  void end_tag(char sign, bool trims) {
    if (sign == '-') {
      pass(num_space_bytes(rest()));
    } else if (sign != '+' && trims && at_ < source_.size() && source_[at_] == '\n') {
      pass(1);
    }
  }

  void read_tag(bool is_variable) {
    const std::string_view end = is_variable ? "}}" : "%}";
    std::string open;
    while (at_ < source_.size()) {
      if (open.empty()) {
        const bool has_minus = rest().starts_with('-') && rest().substr(1).starts_with(end);
        const bool has_plus =
            !is_variable && rest().starts_with('+') && rest().substr(1).starts_with(end);
        if (has_minus || has_plus || rest().starts_with(end)) {
          const char sign = has_minus ? '-' : has_plus ? '+' : ' ';
          add(is_variable ? TokenType::VariableEnd : TokenType::BlockEnd);
          pass(2 + (sign == ' ' ? 0 : 1));
          return end_tag(sign, !is_variable);
        }
      }
      read_token(open);
    }
    fail_here("a tag has no end; allowed: " + std::string(end));
  }

  void read_token(std::string& open) {
    if (const std::size_t spaces = num_space_bytes(rest()); spaces > 0) return pass(spaces);
    const char c = source_[at_];
    if (is_digit_char(c)) return read_number();
    if (is_name_start(c)) {
      std::size_t size = 1;
      while (at_ + size < source_.size() && is_name_char(source_[at_ + size])) ++size;
      add(TokenType::Name, std::string(rest().substr(0, size)));
      return pass(size);
    }
    if (c == '\'' || c == '"') return read_text(c);
    read_symbol(open);
  }

  // Digits with single underscores between them.
  std::size_t digits_size(std::size_t from, int base) const {
    std::size_t end = from;
    const auto is_digit_at = [&](std::size_t at) {
      if (at >= source_.size()) return false;
      const int digit = hex_value(source_[at]);
      return digit >= 0 && digit < base;
    };
    while (is_digit_at(end) || (end < source_.size() && source_[end] == '_' &&
                                (end > from || base != 10) && is_digit_at(end + 1))) {
      ++end;
    }
    return end - from;
  }

  // The end of a number with a fraction or an exponent; its begin if it has none.
  std::size_t float_end() const {
    std::size_t end = at_ + digits_size(at_, 10);
    bool is_float = false;
    if (end < source_.size() && source_[end] == '.') {
      if (const std::size_t size = digits_size(end + 1, 10); size > 0) {
        end += 1 + size;
        is_float = true;
      }
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t power = end + 1;
      if (power < source_.size() && (source_[power] == '+' || source_[power] == '-')) ++power;
      if (const std::size_t size = digits_size(power, 10); size > 0) return power + size;
    }
    return is_float ? end : at_;
  }

  void read_number() {
    const bool is_behind_dot = at_ > 0 && source_[at_ - 1] == '.';
    const std::size_t float_size = is_behind_dot ? 0 : float_end() - at_;
    int base = 10;
    std::size_t begin = at_;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      if (base != 10 && digits_size(at_ + 2, base) > 0) {
        begin = at_ + 2;
      } else {
        base = 10;
      }
    }
    std::size_t end = begin + digits_size(begin, base);
    if (float_size > 0) {
      begin = at_;
      end = at_ + float_size;
    } else if (base == 10 && source_[begin] == '0') {
      // A number does not begin with 0: jinja2 sees several.
      end = begin + 1;
      while (end < source_.size() && source_[end] == '0') ++end;
    }
    std::string digits = source_.substr(begin, end - begin);
    std::erase(digits, '_');
    add(float_size > 0 ? TokenType::Float : TokenType::Integer);
    set_number(digits, base);
    pass(end - at_);
  }

  void set_number(const std::string& digits, int base) {
    Token& token = tokens_.back();
    if (token.type == TokenType::Float) {
      const auto [last, error] =
          metronome::read_number(digits.data(), digits.data() + digits.size(), token.real);
      if (error != std::errc()) fail_here("a number is out of range");
      return;
    }
    const auto [last, error] =
        metronome::read_number(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (error != std::errc()) fail_here("an integer does not fit into 64 bits");
  }

  void read_text(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_here("a string has no end");
    const std::string_view inside = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    add(TokenType::Text, Unescaper(inside, line_).run());
    pass(end + 1 - at_);
  }

  void read_symbol(std::string& open) {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    std::string symbol;
    for (const std::string_view two : kTwo) {
      if (rest().starts_with(two)) symbol = two;
    }
    if (symbol.empty()) {
      if (kOne.find(source_[at_]) == kOne.npos) {
        fail_here(static_cast<unsigned char>(source_[at_]) >= 0x80
                      ? "a name has a character that is not ASCII; allowed: letters, digits, _"
                      : "a tag has an unexpected character '" + std::string(1, source_[at_]) + "'");
      }
      symbol = source_[at_];
    }
    const char c = symbol[0];
    if (c == '{' || c == '(' || c == '[') {
      open += c == '{' ? '}' : c == '(' ? ')' : ']';
    } else if (c == '}' || c == ')' || c == ']') {
      if (open.empty() || open.back() != c) fail_here("'" + symbol + "' closes nothing");
      open.pop_back();
    }
    add(TokenType::Symbol, symbol);
    pass(symbol.size());
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace metronome::jinja
