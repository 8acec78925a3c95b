// SPDX-License-Identifier: Apache-2.0
// The lines, objects and numbers of traces.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/number_chars.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

std::string_view trim_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::size_t end_of_quotes(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == std::string_view::npos || line[begin] != '"') return 0;
  for (std::size_t end = begin + 1; end < line.size(); ++end) {
    if (line[end] != '"') continue;
    if (end + 1 == line.size() || line[end + 1] != '"') return end + 1;
    ++end;
  }
  return 0;  // an open quote is text
}

std::string_view without_quotes(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return text;
  return text.substr(1, text.size() - 2);
}

namespace {

// Behind the JSON value at the start of the text; the text's size if it does not end.
std::size_t end_of_json(std::string_view text) {
  std::size_t depth = 0;
  bool is_in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string) {
      if (c == '\\') ++i;
      is_in_string = c != '"';
      continue;
    }
    if (c == '"') is_in_string = true;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return i;
      if (--depth == 0) return i + 1;
    }
    if (depth == 0 && (c == ',' || c == '\n')) return i;
  }
  return text.size();
}

}  // namespace

std::string_view first_json(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  if (text.starts_with('[')) {
    text.remove_prefix(1);
    text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  }
  return text.substr(0, end_of_json(text));
}

TraceLines TraceLines::with_records(std::shared_ptr<const TraceRecords> records) const {
  TraceLines lines({}, file_);
  lines.records_ = std::move(records);
  return lines;
}

TraceLines TraceLines::with_objects() const {
  auto records = std::make_shared<TraceRecords>();
  int line = 1;
  std::string_view rest = rest_;
  const auto skip = [&](std::size_t count) {
    for (const char c : rest.substr(0, count)) line += c == '\n' ? 1 : 0;
    rest.remove_prefix(count);
  };
  const auto skip_to = [&](std::string_view between) {
    skip(std::min(rest.find_first_not_of(between), rest.size()));
  };
  skip_to(" \t\r\n");
  if (rest.starts_with('[')) skip(1);
  while (true) {
    skip_to(" \t\r\n,");
    if (rest.empty() || rest.front() == ']') break;
    const std::size_t end = std::max<std::size_t>(1, end_of_json(rest));
    records->add(std::string(rest.substr(0, end)), line);
    skip(end);
  }
  return with_records(std::move(records));
}

bool TraceLines::next() {
  if (records_) {
    if (next_record_ == records_->records_.size()) return false;
    const TraceRecords::Record& record = records_->records_[next_record_++];
    line_ = record.text;
    number_ = record.line;
    return true;
  }
  while (!rest_.empty()) {
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++number_;
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    if (line_.find_first_not_of(" \t") != std::string_view::npos) return true;
  }
  return false;
}

void TraceLines::fail(std::string_view field, std::string_view message) const {
  fail_at(number_, field, message);
}

void TraceLines::fail_at(int line, std::string_view field, std::string_view message) const {
  fail_config({file_, line}, field, message);
}

std::string TraceLines::place(std::string_view field) const {
  return fmt::format("{}:{}: {}", *file_, number_, field);
}

std::string quote_for_message(std::string_view text) {
  constexpr std::size_t kMaxChars = 40;
  std::string quoted = "'";
  quoted.append(text.substr(0, kMaxChars));
  return quoted += text.size() > kMaxChars ? "...'" : "'";
}

std::int64_t parse_trace_integer(const TraceLines& lines, std::string_view text,
                                 std::string_view field, std::int64_t min, std::int64_t max) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = read_number(text.data(), end, number);
  const bool is_malformed = rest != end || error == std::errc::invalid_argument;
  if (is_malformed) {
    lines.fail(field, quote_for_message(text) +
                          " is not a whole number; allowed: " + describe_range(min, max));
  }
  if (error != std::errc() || number < min || number > max) {
    lines.fail(field,
               quote_for_message(text) + " is out of range; allowed: " + describe_range(min, max));
  }
  return number;
}

TimeNs parse_trace_time(const TraceLines& lines, std::string_view text, std::string_view field,
                        std::int64_t max_value, TimeNs ns_per_unit) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = read_number(text.data(), end, number);
  if (rest != end || error == std::errc::invalid_argument) {
    lines.fail(field, quote_for_message(text) +
                          " is not a number; allowed: " + describe_range(0, max_value));
  }
  // This form makes NaN fail.
  const bool is_in_range = number >= 0 && number <= static_cast<double>(max_value);
  if (error != std::errc() || !is_in_range) {
    lines.fail(field, quote_for_message(text) +
                          " is out of range; allowed: " + describe_range(0, max_value));
  }
  return std::llround(number * static_cast<double>(ns_per_unit));
}

}  // namespace metronome
