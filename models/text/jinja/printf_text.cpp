// SPDX-License-Identifier: Apache-2.0
// Python's printf-style format of texts.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/number_chars.h"
#include "models/text/jinja/characters.h"
#include "models/text/jinja/operators.h"

namespace metronome::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 1000;

struct Conversion {
  bool is_left = false, has_zeros = false, has_plus = false, has_space = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 's';
};

class Printf {
 public:
  Printf(Runtime& runtime, const std::string& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values) {}

  std::string run() {
    while (at_ < format_.size()) {
      const char c = format_[at_++];
      if (c != '%') {
        result_ += c;
      } else if (at_ < format_.size() && format_[at_] == '%') {
        result_ += format_[at_++];
      } else {
        convert();
      }
      runtime_.meter().expect(result_.size());
    }
    // Python takes what can be indexed for a mapping, of which some may be left.
    const bool is_mapping = values_.is(Kind::Dict) || values_.is(Kind::List) ||
                            values_.is(Kind::Range) || values_.is_undefined();
    const bool has_rest = values_.is(Kind::Tuple) ? next_ < values_.as<List>().entries.size()
                                                  : next_ == 0 && !is_mapping;
    if (has_rest) fail("not all arguments converted during string formatting");
    return std::move(result_);
  }

 private:
  char next_char() {
    if (at_ >= format_.size()) fail("incomplete format");
    return format_[at_++];
  }

  std::int64_t number() {
    std::int64_t result = 0;
    while (at_ < format_.size() && format_[at_] >= '0' && format_[at_] <= '9') {
      result = std::min(result * 10 + (format_[at_++] - '0'), kMaxWidth + 1);
    }
    if (result > kMaxWidth) {
      fail(fmt::format("a width of a format is too large; allowed: up to {}", kMaxWidth));
    }
    return result;
  }

  const Value& argument() {
    if (!values_.is(Kind::Tuple)) {
      if (next_++ > 0) fail("not enough arguments for format string");
      return values_;
    }
    const auto& entries = values_.as<List>().entries;
    if (next_ >= entries.size()) fail("not enough arguments for format string");
    return entries[next_++];
  }

  const Value& keyed_argument() {
    const std::size_t end = format_.find(')', at_);
    if (end == format_.npos) fail("incomplete format key");
    const std::string key = format_.substr(at_, end - at_);
    at_ = end + 1;
    if (!values_.is(Kind::Dict)) fail("format requires a mapping");
    const Value* found = values_.as<Dict>().find(std::string_view(key));
    if (found == nullptr) fail("'" + key + "'");
    return *found;
  }

  void convert() {
    const bool has_key = at_ < format_.size() && format_[at_] == '(';
    if (has_key) ++at_;
    const Value* value = has_key ? &keyed_argument() : nullptr;
    Conversion how;
    for (char c; (c = next_char(), std::string_view("-+ 0").find(c) != std::string_view::npos);) {
      how.is_left |= c == '-';
      how.has_plus |= c == '+';
      how.has_space |= c == ' ';
      how.has_zeros |= c == '0';
    }
    --at_;
    how.width = number();
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      how.precision = number();
    }
    how.type = next_char();
    if (std::string_view("srdiufFeEgGxXoc").find(how.type) == std::string_view::npos) {
      fail("a conversion %" + std::string(1, how.type) +
           " of a format is not supported; allowed: s, r, d, i, u, f, F, x, X, o");
    }
    write(how, value != nullptr ? *value : argument());
  }

  void write(const Conversion& how, const Value& value) {
    std::string text;
    bool is_number = true;
    switch (how.type) {
      case 's':
      case 'r':
        text = how.type == 's' ? to_text(runtime_, value) : to_repr(runtime_, value);
        if (how.precision >= 0) text = shortened(text, how.precision);
        is_number = false;
        break;
      case 'd':
      case 'i':
      case 'u': text = whole(value, 10, how); break;
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral()) fail("%x format: an integer is required");
        text = whole(value, how.type == 'o' ? 8 : 16, how);
        break;
      case 'f':
      case 'F': text = fixed(value, how.precision < 0 ? 6 : how.precision); break;
      default:
        fail("a conversion %" + std::string(1, how.type) +
             " of a format is not supported; allowed: s, r, d, i, u, f, F, x, X, o");
    }
    if (is_number && !text.starts_with('-')) {
      if (how.has_plus) text.insert(0, "+");
      if (!how.has_plus && how.has_space) text.insert(0, " ");
    }
    pad(how, is_number, text);
    result_ += text;
  }

  static std::string shortened(const std::string& text, std::int64_t count) {
    const Text whole(nullptr, text);
    return picked_of(whole, 0, 1, std::min(count, num_characters(whole)));
  }

  static std::string whole(const Value& value, int base, const Conversion& how) {
    require_defined(value);
    if (!value.is_number()) {
      fail("%d format: a real number is required, not " + std::string(type_name(value)));
    }
    std::int64_t number = 0;
    if (value.is_integral()) {
      number = value.integer();
    } else {
      if (!(std::abs(value.real()) < 9.2e18)) fail("cannot convert float to integer");
      number = static_cast<std::int64_t>(value.real());
    }
    char buffer[80];
    const auto end = write_number(buffer, buffer + sizeof buffer, number, base);
    std::string text(buffer, end.ptr);
    if (how.type == 'X') {
      std::transform(text.begin(), text.end(), text.begin(),
                     [](char c) { return c >= 'a' && c <= 'f' ? static_cast<char>(c - 32) : c; });
    }
    const std::size_t sign = text.starts_with('-') ? 1 : 0;
    const auto digits = static_cast<std::int64_t>(text.size() - sign);
    if (how.precision > digits) {
      text.insert(sign, static_cast<std::size_t>(how.precision - digits), '0');
    }
    return text;
  }

  static std::string fixed(const Value& value, std::int64_t precision) {
    require_defined(value);
    if (!value.is_number()) fail("must be real number, not " + std::string(type_name(value)));
    if (!std::isfinite(value.real())) return float_text(value.real());
    std::string buffer(static_cast<std::size_t>(400 + precision), '\0');
    const auto end = write_fixed(buffer.data(), buffer.data() + buffer.size(), value.real(),
                                 static_cast<int>(precision));
    return std::string(buffer.data(), end.ptr);
  }

  static void pad(const Conversion& how, bool is_number, std::string& text) {
    const std::int64_t missing = how.width - num_characters(Text(nullptr, text));
    if (missing <= 0) return;
    const auto count = static_cast<std::size_t>(missing);
    if (how.is_left) {
      text.append(count, ' ');
    } else if (is_number && how.has_zeros) {
      text.insert(text.find_first_of("+- ") == 0 ? 1 : 0, count, '0');
    } else {
      text.insert(0, count, ' ');
    }
  }

  Runtime& runtime_;
  const std::string& format_;
  const Value& values_;
  std::string result_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
};

}  // namespace

std::string printf_text(Runtime& runtime, const std::string& format, const Value& values) {
  return Printf(runtime, format, values).run();
}

}  // namespace metronome::jinja
