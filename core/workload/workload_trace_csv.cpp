// SPDX-License-Identifier: Apache-2.0
// Azure, Vidur and BurstGPT traces: three columns of a CSV each.
#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

namespace {

enum Role : std::size_t { kArrival, kPrompt, kOutput, kNumRoles };

// The columns of a format by role.
struct CsvSchema {
  TraceFormat format;
  std::string_view article_and_name;
  std::array<std::string_view, kNumRoles> columns;
};

constexpr CsvSchema kSchemas[] = {
    {TraceFormat::Azure, "an azure", {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}},
    {TraceFormat::Vidur, "a vidur", {"arrived_at", "num_prefill_tokens", "num_decode_tokens"}},
    {TraceFormat::Vidur, "a vidur", {"arrival_s", "prompt_tokens", "output_tokens"}},
    {TraceFormat::BurstGpt, "a burstgpt", {"Timestamp", "Request tokens", "Response tokens"}},
};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Calls visit(position, field) for each field; returns their number. No format quotes its fields.
template <class Visit>
std::size_t for_each_field(std::string_view line, Visit visit) {
  std::size_t position = 0;
  while (true) {
    const std::size_t comma = line.find(',');
    visit(position++, trim(line.substr(0, comma)));
    if (comma == std::string_view::npos) return position;
    line.remove_prefix(comma + 1);
  }
}

struct CsvHeader {
  std::array<std::size_t, kNumRoles> position;  // kMissing: no such column
  std::size_t num_columns;
  std::string_view repeated;  // the name of a column that appears twice; empty: none

  static constexpr std::size_t kMissing = SIZE_MAX;

  std::size_t num_found() const {
    return kNumRoles -
           static_cast<std::size_t>(std::count(position.begin(), position.end(), kMissing));
  }
};

CsvHeader match_header(std::string_view line, const CsvSchema& schema) {
  CsvHeader header{};
  header.position.fill(CsvHeader::kMissing);
  header.num_columns = for_each_field(line, [&](std::size_t position, std::string_view name) {
    for (std::size_t role = 0; role < kNumRoles; ++role) {
      if (schema.columns[role] != name) continue;
      if (header.position[role] != CsvHeader::kMissing) header.repeated = name;
      header.position[role] = position;
    }
  });
  return header;
}

// The schema of `format` (Auto: any format) that matches most of the header's columns.
const CsvSchema* best_schema(std::string_view header, TraceFormat format) {
  const CsvSchema* best = nullptr;
  std::size_t best_found = 0;
  for (const CsvSchema& schema : kSchemas) {
    if (format != TraceFormat::Auto && format != schema.format) continue;
    const std::size_t found = match_header(header, schema).num_found();
    const bool is_first_of_format = best == nullptr && format != TraceFormat::Auto;
    if (found > best_found || is_first_of_format) {
      best = &schema;
      best_found = found;
    }
  }
  return best;
}

// ---- Azure timestamps ----

bool is_leap_year(std::int64_t year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

std::int64_t days_in_month(std::int64_t year, std::int64_t month) {
  if (month == 2) return is_leap_year(year) ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

// Days from 1970-01-01 to a Gregorian date.
std::int64_t days_since_epoch(std::int64_t year, std::int64_t month, std::int64_t day) {
  static constexpr std::int64_t kDaysBefore[] = {0,   31,  59,  90,  120, 151,
                                                 181, 212, 243, 273, 304, 334};
  const std::int64_t past = year - 1;
  const std::int64_t leap_days = past / 4 - past / 100 + past / 400;
  constexpr std::int64_t kLeapDaysBefore1970 = 1969 / 4 - 1969 / 100 + 1969 / 400;
  return (year - 1970) * 365 + leap_days - kLeapDaysBefore1970 + kDaysBefore[month - 1] +
         (is_leap_year(year) && month > 2 ? 1 : 0) + day - 1;
}

// Scans a date and time step by step; after a mismatch `ok` stays false.
struct TimeScanner {
  std::string_view rest;
  bool ok = true;

  bool accept(char c) {
    if (rest.empty() || rest.front() != c) return false;
    rest.remove_prefix(1);
    return true;
  }
  void expect(char c) { ok = accept(c) && ok; }

  // Exactly `width` digits, in [min, max].
  std::int64_t digits(std::size_t width, std::int64_t min, std::int64_t max) {
    std::int64_t number = 0;
    if (rest.size() < width) ok = false;
    for (std::size_t i = 0; ok && i < width; ++i) {
      ok = rest[i] >= '0' && rest[i] <= '9';
      number = number * 10 + (rest[i] - '0');
    }
    ok = ok && number >= min && number <= max;
    if (!ok) return min;
    rest.remove_prefix(width);
    return number;
  }

  // The digits after a decimal point, in nanoseconds.
  TimeNs fraction() {
    TimeNs ns = 0;
    TimeNs unit = kNsPerSecond / 10;
    std::size_t count = 0;
    for (; count < rest.size() && rest[count] >= '0' && rest[count] <= '9'; ++count) {
      ns += (rest[count] - '0') * unit;
      unit /= 10;
    }
    ok = ok && count > 0;
    rest.remove_prefix(count);
    return ns;
  }

  // The UTC offset in seconds: from Z, +HH:MM, -HH:MM, or 0 if absent.
  std::int64_t zone() {
    if (accept('Z') || rest.empty()) return 0;
    const std::int64_t sign = accept('-') ? -1 : 1;
    if (sign > 0) expect('+');
    const std::int64_t hours = digits(2, 0, 23);
    expect(':');
    return sign * (hours * 3600 + digits(2, 0, 59) * 60);
  }
};

TimeNs parse_date_time(const TraceLines& lines, std::string_view text, std::string_view field) {
  TimeScanner scan{text};
  const std::int64_t year = scan.digits(4, 1970, 2095);
  scan.expect('-');
  const std::int64_t month = scan.digits(2, 1, 12);
  scan.expect('-');
  const std::int64_t day = scan.digits(2, 1, days_in_month(year, month));
  if (!scan.accept('T')) scan.expect(' ');
  const std::int64_t hour = scan.digits(2, 0, 23);
  scan.expect(':');
  const std::int64_t minute = scan.digits(2, 0, 59);
  scan.expect(':');
  const std::int64_t second = scan.digits(2, 0, 59);
  const TimeNs fraction_ns = scan.accept('.') ? scan.fraction() : 0;
  const std::int64_t zone_s = scan.zone();
  if (!scan.ok || !scan.rest.empty()) {
    lines.fail(field, quote_for_message(text) +
                          " is not a time; allowed: YYYY-MM-DD HH:MM:SS, 1970 to 2095, with "
                          "decimals and +HH:MM where needed");
  }
  const std::int64_t days = days_since_epoch(year, month, day);
  const std::int64_t seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - zone_s;
  return seconds * kNsPerSecond + fraction_ns;
}

// ---- Rows ----

std::array<std::string_view, kNumRoles> split_row(const TraceLines& lines, const CsvSchema& schema,
                                                  const CsvHeader& header) {
  std::array<std::string_view, kNumRoles> fields;
  const std::size_t num_fields =
      for_each_field(lines.line(), [&](std::size_t position, std::string_view field) {
        for (std::size_t role = 0; role < kNumRoles; ++role) {
          if (header.position[role] == position) fields[role] = field;
        }
      });
  if (num_fields == header.num_columns) return fields;
  const std::string counts = "the line has " + std::to_string(num_fields) +
                             " fields; the first line names " + std::to_string(header.num_columns) +
                             " columns";
  for (std::size_t role = 0; role < kNumRoles; ++role) {
    if (header.position[role] >= num_fields) lines.fail(schema.columns[role], "missing, " + counts);
  }
  lines.fail("columns", counts);
}

void append_row(const TraceLines& lines, const CsvSchema& schema,
                const std::array<std::string_view, kNumRoles>& fields, Workload& workload) {
  const auto parse_tokens = [&](Role role, std::int64_t min) {
    return static_cast<std::int32_t>(
        parse_trace_integer(lines, fields[role], schema.columns[role], min, kMaxLengthTokens));
  };
  const bool skips_failed = schema.format == TraceFormat::BurstGpt;
  RequestSpec request;
  request.arrival = schema.format == TraceFormat::Azure
                        ? parse_date_time(lines, fields[kArrival], schema.columns[kArrival])
                        : parse_trace_time(lines, fields[kArrival], schema.columns[kArrival],
                                           kMaxTraceSeconds, kNsPerSecond);
  request.max_output_tokens = parse_tokens(kOutput, skips_failed ? 0 : 1);
  if (request.max_output_tokens == 0) {
    ++workload.num_skipped;
    return;
  }
  request.num_prompt_tokens = parse_tokens(kPrompt, 1);
  workload.requests.push_back(request);
}

}  // namespace

TraceFormat detect_csv_format(std::string_view header) {
  const CsvSchema* schema = best_schema(header, TraceFormat::Auto);
  return schema != nullptr ? schema->format : TraceFormat::Auto;
}

void parse_csv_trace(TraceLines& lines, TraceFormat format, Workload& workload) {
  const bool has_header = lines.next();
  METRONOME_CHECK(has_header, "an empty file is refused before its format is known");
  const CsvSchema* schema = best_schema(lines.line(), format);
  METRONOME_CHECK(schema != nullptr, "not a CSV format");
  const CsvHeader header = match_header(lines.line(), *schema);
  if (!header.repeated.empty()) lines.fail(header.repeated, "appears twice; allowed: once");
  for (std::size_t role = 0; role < kNumRoles; ++role) {
    if (header.position[role] != CsvHeader::kMissing) continue;
    lines.fail(schema->columns[role], "missing column; " + std::string(schema->article_and_name) +
                                          " trace has " + join_names(schema->columns));
  }
  while (lines.next()) append_row(lines, *schema, split_row(lines, *schema, header), workload);
}

}  // namespace metronome
