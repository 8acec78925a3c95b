// SPDX-License-Identifier: Apache-2.0
// Shared by the trace parsers: line-by-line reading and errors about a line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/config_reader.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"

namespace metronome {

// Recorded times may be epochs. Later ones would leave no room for arithmetic in nanoseconds.
constexpr std::int64_t kMaxTraceSeconds = 4'000'000'000;

// The text behind the mark with which some editors and spreadsheets begin a file in UTF-8.
std::string_view without_byte_order_mark(std::string_view text);

// Texts of their own, with the line of the file that each comes from.
class TraceRecords {
 public:
  void add(std::string text, int line) { records_.push_back({std::move(text), line}); }

 private:
  friend class TraceLines;
  struct Record {
    std::string text;
    int line;
  };
  std::vector<Record> records_;
};

// Iterates over the lines of a trace, or over other parts of it that are records. The text must
// outlive it.
class TraceLines {
 public:
  TraceLines(std::string_view text, std::shared_ptr<const std::string> file)
      : rest_(without_byte_order_mark(text)), file_(std::move(file)) {}

  // The same file, by these records.
  TraceLines with_records(std::shared_ptr<const TraceRecords> records) const;
  // The same file, by its JSON objects: those of an array, or one after the other.
  TraceLines with_objects() const;

  // Moves to the next non-blank line; false at the end. Line ends may be \n or \r\n.
  bool next();
  std::string_view line() const { return line_; }
  int number() const { return number_; }

  // Throws ConfigError "file:line: field: message" about the current line.
  [[noreturn]] void fail(std::string_view field, std::string_view message) const;
  [[noreturn]] void fail_at(int line, std::string_view field, std::string_view message) const;
  // "file:line: field", for messages of those who read the field's value later.
  std::string place(std::string_view field) const;

 private:
  std::string_view rest_;
  std::string_view line_;
  int number_ = 0;
  std::shared_ptr<const std::string> file_;
  std::shared_ptr<const TraceRecords> records_;  // null: lines
  std::size_t next_record_ = 0;
};

// The first JSON value of a text, or of the array that it is; whole or not.
std::string_view first_json(std::string_view text);

// Text from a file, shortened to fit a message.
std::string quote_for_message(std::string_view text);

// Parses an integer in [min, max].
std::int64_t parse_trace_integer(const TraceLines& lines, std::string_view text,
                                 std::string_view field, std::int64_t min, std::int64_t max);
// Parses a decimal number in [0, max_value], multiplied by ns_per_unit, to the nearest nanosecond.
TimeNs parse_trace_time(const TraceLines& lines, std::string_view text, std::string_view field,
                        std::int64_t max_value, TimeNs ns_per_unit);

// Parses YYYY-MM-DD HH:MM:SS with any number of decimals and an optional Z or +HH:MM. Digits beyond
// nanoseconds are dropped.
TimeNs parse_trace_date(const TraceLines& lines, std::string_view text, std::string_view field);

std::string_view trim_spaces(std::string_view text);
// Behind the quoted text with which a line begins, after spaces; 0 if it does not.
std::size_t end_of_quotes(std::string_view line);
// The text between quotes around it, if there are any.
std::string_view without_quotes(std::string_view text);

// Calls visit(position, field) for each field of a line, without the spaces around it; returns
// their number. A field may be quoted; quotes in it stay doubled.
template <class Visit>
std::size_t for_each_csv_field(std::string_view line, Visit visit) {
  std::size_t position = 0;
  while (true) {
    const std::size_t comma = line.find(',', end_of_quotes(line));
    visit(position++, without_quotes(trim_spaces(line.substr(0, comma))));
    if (comma == std::string_view::npos) return position;
    line.remove_prefix(comma + 1);
  }
}

// Selects requests from a JSON array of conversations; sets no arrivals. `lines` is for messages.
void parse_chats(std::string_view text, const TraceLines& lines, const TraceConfig& config,
                 std::uint64_t seed, Workload& workload);

// An image of a request in a trace.
struct TraceImage {
  std::int32_t first_token = -1;  // of the prompt; the image has rows * columns tokens
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  std::optional<std::uint64_t> content;  // by default that of the file
  std::string url;                       // data: with a PNG or JPEG file; may be empty
};
// Appends the images of the next request: in order, inside its prompt, and equal contents of equal
// size.
void add_trace_images(std::span<const TraceImage> images, std::int32_t num_prompt_tokens,
                      const TraceLines& lines, Workload& workload);

// Sets the requests' arrivals, in order, to those of a server's log.
void parse_logged_arrivals(TraceLines& lines, Workload& workload);

}  // namespace metronome
