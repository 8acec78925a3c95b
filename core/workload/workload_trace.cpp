// SPDX-License-Identifier: Apache-2.0
#include "core/workload/workload_trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/number_chars.h"
#include "core/base/rng.h"
#include "core/workload/trace_rows.h"
#include "core/workload/workload_cut.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

namespace {

constexpr TimeNs kMooncakeBucketNs = 3 * kNsPerSecond;

[[noreturn]] void fail_file(const TraceConfig& config, const std::string& problem) {
  fail_config(config.where, "workload.trace.file", problem + "; it must be a readable trace file");
}

std::string read_whole_file(const TraceConfig& config, const std::string& path) {
  std::optional<std::string> text = read_file(path);
  if (!text) fail_file(config, "'" + path + "' " + input_problem());
  return std::move(*text);
}

[[noreturn]] void fail_unknown_format(TraceLines lines) {
  lines.next();
  lines.fail("unknown trace format", quote_for_message(lines.line()) +
                                         "; allowed: CSV with a header of " +
                                         describe_formats(TraceShape::Csv) + "; JSON lines of " +
                                         describe_formats(TraceShape::JsonLines) +
                                         "; a JSON array of sharegpt conversations");
}

TraceMapping mapping_of(TraceLines lines, TraceFormat format) {
  lines.next();
  const bool is_json = lines.line().starts_with('{');
  std::optional<TraceMapping> mapping = find_mapping(format, lines.line(), is_json);
  if (!mapping) fail_unknown_format(lines);
  return std::move(*mapping);
}

void read_rows(TraceLines& lines, const TraceMapping& mapping, Workload& workload) {
  TraceRequests requests(mapping, workload);
  if (mapping.shape == TraceShape::Csv) {
    read_csv_rows(lines, mapping, requests);
  } else {
    read_json_rows(lines, mapping, requests);
  }
  requests.finish();
}

// Puts the ranges items[begin[i] .. begin[i + 1]) into `order`.
template <class Item, class Offset>
void reorder_ranges(const std::vector<std::size_t>& order, std::vector<Item>& items,
                    std::vector<Offset>& begin) {
  if (begin.empty()) return;
  std::vector<Item> sorted;
  std::vector<Offset> sorted_begin;
  sorted.reserve(items.size());
  sorted_begin.reserve(begin.size());
  for (const std::size_t i : order) {
    sorted_begin.push_back(static_cast<Offset>(sorted.size()));
    for (Offset k = begin[i]; k < begin[i + 1]; ++k) {
      sorted.push_back(items[static_cast<std::size_t>(k)]);
    }
  }
  sorted_begin.push_back(static_cast<Offset>(sorted.size()));
  items = std::move(sorted);
  begin = std::move(sorted_begin);
}

void sort_by_arrival(Workload& workload) {
  std::vector<RequestSpec>& requests = workload.requests;
  const auto earlier = [](const RequestSpec& a, const RequestSpec& b) {
    return a.arrival < b.arrival;
  };
  if (std::is_sorted(requests.begin(), requests.end(), earlier)) return;
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return earlier(requests[a], requests[b]); });
  std::vector<RequestSpec> sorted;
  sorted.reserve(requests.size());
  for (const std::size_t i : order) sorted.push_back(requests[i]);
  requests = std::move(sorted);
  reorder_ranges(order, workload.segments, workload.segment_begin);
  reorder_ranges(order, workload.token_ids, workload.token_begin);
  reorder_ranges(order, workload.images, workload.image_begin);
}

void read_logged_arrivals(const TraceConfig& config, Workload& workload) {
  const std::string& path = config.request_log;
  const std::string text = read_whole_file(config, path);
  TraceLines lines(text, std::make_shared<const std::string>(path));
  parse_logged_arrivals(lines, workload);
}

// Spreads each bucket's requests over its 3 s, in order. Recorded times are multiples of 3 s from
// the first one, within a few milliseconds.
void spread_buckets(std::uint64_t seed, std::vector<RequestSpec>& requests) {
  Rng rng(seed, "trace_jitter");
  const TimeNs start = requests.front().arrival;
  const auto bucket_of = [start](const RequestSpec& request) {
    return (request.arrival - start + kMooncakeBucketNs / 2) / kMooncakeBucketNs;
  };
  std::vector<TimeNs> times;
  for (std::size_t begin = 0; begin < requests.size(); begin += times.size()) {
    const std::int64_t bucket = bucket_of(requests[begin]);
    const TimeNs bucket_start = start + bucket * kMooncakeBucketNs;
    times.clear();
    for (std::size_t i = begin; i < requests.size() && bucket_of(requests[i]) == bucket; ++i) {
      times.push_back(bucket_start + rng.uniform_int(0, kMooncakeBucketNs - 1));
    }
    std::sort(times.begin(), times.end());
    for (std::size_t i = 0; i < times.size(); ++i) requests[begin + i].arrival = times[i];
  }
}

}  // namespace

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

bool TraceLines::next() {
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
  fail_config({file_, number_}, field, message);
}

std::string TraceLines::place(std::string_view field) const {
  return *file_ + ":" + std::to_string(number_) + ": " + std::string(field);
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

namespace {

constexpr const char* kFormatOfChats = "it belongs to a JSON array of sharegpt conversations";

// Checks the keys that only conversations use, or must have.
void check_chat_keys(const TraceConfig& config, bool has_chats) {
  const std::string name = "'" + config.file + "'";
  if (!has_chats) {
    const auto refuse = [&](const char* key) {
      fail_config(config.where, std::string("workload.trace.") + key,
                  "not used by " + name + "; " + kFormatOfChats);
    };
    if (!config.tokenizer.empty()) refuse("tokenizer");
    if (config.output_len) refuse("output_len");
    return;
  }
  if (config.tokenizer.empty()) {
    fail_config(config.where, "workload.trace.tokenizer",
                "missing; the lengths of conversations need the path of a tokenizer.json");
  }
  if (!config.request_log.empty()) {
    fail_config(config.where, "workload.trace.request_log",
                "not used by conversations; it belongs to a trace with arrivals");
  }
}

}  // namespace

Workload read_trace(const TraceConfig& config, std::uint64_t seed) {
  const std::string& path = config.file;
  const std::string text = read_whole_file(config, path);
  const std::string_view body = without_byte_order_mark(text);
  const std::size_t first = body.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) fail_file(config, "'" + path + "' is empty");

  TraceLines lines(body, std::make_shared<const std::string>(path));
  const bool may_be_chats =
      config.format == TraceFormat::Auto || config.format == TraceFormat::ShareGpt;
  const bool has_chats = may_be_chats && body[first] == '[';
  check_chat_keys(config, has_chats);
  const auto check_jitter = [&](TraceFormat format) {
    if (!config.jitter || format == TraceFormat::Mooncake) return;
    fail_config(config.where, "workload.trace.jitter",
                "'" + path + "' is not a mooncake trace; it belongs to mooncake");
  };
  Workload workload;
  if (has_chats) {
    check_jitter(TraceFormat::ShareGpt);
    parse_chats(body, lines, config, seed, workload);
    workload.has_arrivals = false;
    return workload;
  }
  const TraceMapping mapping = mapping_of(lines, config.format);
  check_jitter(mapping.format);
  read_rows(lines, mapping, workload);
  if (workload.requests.empty()) fail_file(config, "'" + path + "' contains no request");
  if (!config.request_log.empty()) read_logged_arrivals(config, workload);
  sort_by_arrival(workload);
  if (config.limit > 0) keep_first(static_cast<std::size_t>(config.limit), workload);
  return workload;
}

void place_recorded_arrivals(const TraceConfig& config, std::uint64_t seed, Workload& workload) {
  std::vector<RequestSpec>& requests = workload.requests;
  METRONOME_CHECK(!requests.empty(), "a trace has at least one request");
  if (config.jitter) spread_buckets(seed, requests);
  const TimeNs first = requests.front().arrival;
  const double last_s = to_seconds(requests.back().arrival - first) / config.rate_scale;
  if (last_s > static_cast<double>(kMaxArrivalSeconds)) {
    fail_config(config.where, "workload.trace.rate_scale",
                "the last request would arrive after " + std::to_string(last_s) + " s; at most " +
                    std::to_string(kMaxArrivalSeconds) + " s");
  }
  for (RequestSpec& request : requests) {
    request.arrival -= first;
    if (config.rate_scale != 1.0) {
      request.arrival = std::llround(static_cast<double>(request.arrival) / config.rate_scale);
    }
  }
}

}  // namespace metronome
