// SPDX-License-Identifier: Apache-2.0
// Dates and times of traces.
#include "core/workload/workload_trace_parse.h"

namespace metronome {

namespace {

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

}  // namespace

TimeNs parse_trace_date(const TraceLines& lines, std::string_view text, std::string_view field) {
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

}  // namespace metronome
