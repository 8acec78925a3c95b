// What the trace parsers share: the file's text line by line, and complaints about a line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/config/config_reader.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"

namespace metronome {

// Recorded times may be epochs; nanoseconds of later ones would not leave room to compute with.
constexpr std::int64_t kMaxTraceSeconds = 4'000'000'000;
constexpr std::int32_t kTraceBlockTokens = 512;  // Mooncake: prompt tokens of one hash id

// A walk over the lines of a trace. The text outlives it.
class TraceLines {
 public:
  TraceLines(std::string_view text, std::shared_ptr<const std::string> file)
      : rest_(text), file_(std::move(file)) {}

  // Moves to the next line that is not blank; false at the end. Line ends may be \n or \r\n.
  bool next();
  std::string_view line() const { return line_; }
  int number() const { return number_; }

  // Throws ConfigError "file:line: field: message" about the current line.
  [[noreturn]] void fail(std::string_view field, std::string_view message) const;

 private:
  std::string_view rest_;
  std::string_view line_;
  int number_ = 0;
  std::shared_ptr<const std::string> file_;
};

// Text as it stands in a file, cut to a length that fits a message.
std::string quote_for_message(std::string_view text);

// A whole number in [min, max].
std::int64_t parse_trace_integer(const TraceLines& lines, std::string_view text,
                                 std::string_view field, std::int64_t min, std::int64_t max);
// A decimal number in [0, max_value] times ns_per_unit, to the nearest nanosecond.
TimeNs parse_trace_time(const TraceLines& lines, std::string_view text, std::string_view field,
                        std::int64_t max_value, TimeNs ns_per_unit);

// The format whose columns the first line of a CSV names, Auto when it names none of them.
TraceFormat detect_csv_format(std::string_view header);

// Append every request of the text. `lines` stands before the first line.
void parse_csv_trace(TraceLines& lines, TraceFormat format, Workload& workload);
void parse_mooncake_trace(TraceLines& lines, Workload& workload);
void parse_sharegpt_trace(TraceLines& lines, Workload& workload);

// Sets the arrivals of the requests, one by one, to those of a server's log of them.
void parse_logged_arrivals(TraceLines& lines, Workload& workload);

}  // namespace metronome
