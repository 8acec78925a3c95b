// SPDX-License-Identifier: Apache-2.0
#include "engines/log/log_text.h"

#include <cctype>
#include <utility>

namespace metronome {
namespace {

constexpr double kLargest = 1e15;
constexpr double kLargestCount = 2147483647;  // tokens or requests

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Python's brackets and quotes, character by character.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  bool is_at_end() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }
  void skip() { ++at_; }

  // The text up to `separator` or the closing bracket of this level; nullopt: neither comes.
  std::optional<std::string> item(std::string_view separators) {
    const std::size_t begin = at_;
    for (int depth = 0; !is_at_end();) {
      const char c = peek();
      if (c == '\'' || c == '"') {
        if (!skip_quoted()) return std::nullopt;
        continue;
      }
      const bool closes = c == '}' || c == ')' || c == ']';
      if (depth == 0 && (closes || separators.find(c) != std::string_view::npos)) {
        return std::string(trimmed(text_.substr(begin, at_ - begin)));
      }
      if (c == '{' || c == '(' || c == '[') ++depth;
      if (closes) --depth;
      skip();
    }
    return std::nullopt;
  }

 private:
  bool skip_quoted() {
    const char quote = peek();
    for (skip(); !is_at_end() && peek() != quote; skip()) {
      if (peek() == '\\') skip();
      if (is_at_end()) return false;
    }
    if (is_at_end()) return false;
    skip();
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string unquoted(const std::string& text) {
  const bool is_quoted =
      text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text[0];
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

std::string plain_line(std::string_view line) {
  std::string plain;
  plain.reserve(line.size());
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b' || i + 1 == line.size() || line[i + 1] != '[') {
      plain += line[i];
      continue;
    }
    // ESC [ parameters, then one letter.
    for (i += 2; i < line.size() && std::isalpha(static_cast<unsigned char>(line[i])) == 0;) ++i;
  }
  while (!plain.empty() && plain.back() == '\r') plain.pop_back();
  return plain;
}

std::string time_in(std::string_view prefix) {
  constexpr std::string_view kTimeForm = "dd:dd:dd";
  for (std::size_t at = prefix.size(); at-- > 0;) {
    if (prefix.size() - at < kTimeForm.size()) continue;
    bool fits = true;
    for (std::size_t i = 0; i < kTimeForm.size() && fits; ++i) {
      fits = kTimeForm[i] == 'd' ? is_digit(prefix[at + i]) : prefix[at + i] == kTimeForm[i];
    }
    if (!fits) continue;
    std::size_t end = at + kTimeForm.size();
    if (end + 1 < prefix.size() && prefix[end] == '.' && is_digit(prefix[end + 1])) {
      for (++end; end < prefix.size() && is_digit(prefix[end]);) ++end;
    }
    return std::string(prefix.substr(at, end - at));
  }
  return {};
}

std::optional<double> seconds_of(std::string_view time) {
  LineReader reader(time);
  int hours = 0;
  int minutes = 0;
  double seconds = 0;
  const bool is_time = reader.read_number(hours) && reader.take(":") &&
                       reader.read_number(minutes) && reader.take(":") &&
                       reader.read_number(seconds);
  if (!is_time) return std::nullopt;
  return hours * 3600 + minutes * 60 + seconds;
}

std::optional<double> seconds_between(std::string_view before, std::string_view after) {
  constexpr double kDay = 86400;
  const std::optional<double> from = seconds_of(before);
  const std::optional<double> to = seconds_of(after);
  if (!from || !to) return std::nullopt;
  return *to < *from ? *to + kDay - *from : *to - *from;
}

LogFields::LogFields(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(", "), text.size());
    const std::string_view field = text.substr(0, end);
    if (const std::size_t colon = field.find(": "); colon != std::string_view::npos) {
      fields_.emplace(trimmed(field.substr(0, colon)), trimmed(field.substr(colon + 2)));
    }
    text.remove_prefix(std::min(end + 2, text.size()));
  }
}

bool LogFields::read(std::string_view name, double& number, std::string_view unit) const {
  const auto field = fields_.find(name);
  if (field == fields_.end()) return false;
  LineReader reader(field->second);
  double value = 0;
  if (!reader.read_number(value) || !(value <= kLargest) || !reader.take(unit)) return false;
  const std::string_view rest = reader.rest();
  if (!rest.empty() && std::isalnum(static_cast<unsigned char>(rest.front())) != 0) return false;
  number = value;
  return true;
}

bool LogFields::read(std::string_view name, std::int64_t& count) const {
  const auto field = fields_.find(name);
  double value = 0;
  if (!read(name, value) || value > kLargestCount || field->second.find('.') != std::string::npos)
    return false;
  count = static_cast<std::int64_t>(value);
  return true;
}

std::optional<std::map<std::string, std::string>> python_arguments(std::string_view text) {
  const std::size_t open = text.find_first_of("{(");
  if (open == std::string_view::npos) return std::nullopt;
  PythonReader reader(text.substr(open + 1));
  std::map<std::string, std::string> arguments;
  while (!reader.is_at_end()) {
    const std::optional<std::string> name = reader.item(text[open] == '{' ? ":" : "=");
    if (!name) return std::nullopt;
    if (reader.peek() == '}' || reader.peek() == ')') return arguments;
    reader.skip();
    const std::optional<std::string> value = reader.item(",");
    if (!value) return std::nullopt;
    arguments.emplace(unquoted(*name), unquoted(*value));
    if (reader.peek() != ',') return arguments;
    reader.skip();
  }
  return std::nullopt;
}

}  // namespace metronome
