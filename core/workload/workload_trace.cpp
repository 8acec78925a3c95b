// SPDX-License-Identifier: Apache-2.0
#include "core/workload/workload_trace.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/number_chars.h"
#include "core/base/rng.h"
#include "core/workload/trace_agents.h"
#include "core/workload/trace_payloads.h"
#include "core/workload/trace_rows.h"
#include "core/workload/trace_sessions.h"
#include "core/workload/workload_cut.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

namespace {

constexpr TimeNs kMooncakeBucketNs = 3 * kNsPerSecond;

// The first bytes of packed files.
constexpr std::pair<std::string_view, std::string_view> kPackedFiles[] = {
    {"\x1f\x8b", "gzip"},  {"\x28\xb5\x2f\xfd", "zstd"},
    {"\xfd\x37zXZ", "xz"}, {"PK\x03\x04", "zip"},
    {"BZh", "bzip2"},      {"PAR1", "Parquet"}};

[[noreturn]] void fail_file(const TraceConfig& config, const std::string& problem) {
  fail_config(config.where, "workload.trace.file", problem + "; it must be a readable trace file");
}

std::string read_whole_file(const TraceConfig& config, const std::string& path) {
  std::optional<std::string> text = read_file(path);
  if (!text) fail_file(config, "'" + path + "' " + input_problem());
  for (const auto& [magic, name] : kPackedFiles) {
    if (!text->starts_with(magic)) continue;
    fail_config(config.where, "workload.trace.file",
                "'" + path + "' is packed by " + std::string(name) +
                    "; allowed: the file unpacked, as CSV, JSON or JSON Lines");
  }
  return std::move(*text);
}

// `lines` is at the first one.
[[noreturn]] void fail_unknown_format(const TraceConfig& config, const TraceLines& lines) {
  const std::string_view line = lines.line();
  const bool is_prompts = config.file.ends_with(".txt") || line.starts_with("prompt,") ||
                          line == "prompt" || line.find_first_of(",;\t{") == std::string_view::npos;
  if (is_prompts) {
    lines.fail("unknown trace format",
               quote_for_message(line) +
                   " begins texts without lengths of answers; allowed: JSON lines "
                   "{\"prompt\": TEXT, \"output_tokens\": N}, or lengths in columns");
  }
  lines.fail("unknown trace format", quote_for_message(lines.line()) +
                                         "; allowed: CSV with a header of " +
                                         describe_formats(TraceShape::Csv) + "; JSON lines of " +
                                         describe_formats(TraceShape::JsonLines) +
                                         "; a JSON array of sharegpt conversations; or any rows "
                                         "whose columns workload.trace.columns names: arrival, "
                                         "prompt and output");
}

TraceMapping mapping_of(TraceLines lines, const TraceConfig& config) {
  if (!lines.next()) fail_file(config, "'" + config.file + "' contains no request");
  const bool is_json = lines.line().starts_with('{');
  TraceLines next = lines;
  next.next();
  std::optional<TraceMapping> mapping =
      find_mapping(config, lines.line(), is_json, is_json ? std::string_view() : next.line());
  // A log may begin with requests that failed, which say no lengths.
  constexpr int kMostFailures = 1000;
  for (int i = 0; !mapping && is_json && i < kMostFailures; ++i) {
    if (!next.line().starts_with('{')) break;
    mapping = find_mapping(config, next.line(), true);
    if (!next.next()) break;
  }
  if (!mapping) fail_unknown_format(config, lines);
  for (const auto& [field, key] :
       {std::pair(TraceField::Prompt, "prompt"), std::pair(TraceField::Output, "output")}) {
    if (mapping->find(field) != nullptr) continue;
    fail_config(
        config.where, std::string("workload.trace.columns.") + key,
        "missing; allowed: the name of a column or field, which a trace of no known format needs");
  }
  return std::move(*mapping);
}

// Reads the rows, and what they say about sessions: a turn for each request, or none.
std::vector<TraceTurn> read_rows(TraceLines& lines, const TraceMapping& mapping,
                                 Workload& workload) {
  TraceRequests requests(mapping, workload);
  if (mapping.shape == TraceShape::Csv) {
    read_csv_rows(lines, mapping, requests);
  } else {
    read_json_rows(lines, mapping, requests);
  }
  return requests.finish(lines);
}

void sort_by_arrival(std::vector<TraceTurn>& turns, Workload& workload) {
  std::vector<RequestSpec>& requests = workload.requests;
  const auto earlier = [](const RequestSpec& a, const RequestSpec& b) {
    return a.arrival < b.arrival;
  };
  if (std::is_sorted(requests.begin(), requests.end(), earlier)) return;
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return earlier(requests[a], requests[b]); });
  if (!turns.empty()) {
    std::vector<TraceTurn> sorted;
    for (const std::size_t i : order) sorted.push_back(turns[i]);
    turns = std::move(sorted);
  }
  reorder_requests(order, workload);
}

// Orders the requests by arrival, or by sessions whose later requests wait for the ones before.
void order_requests(const TraceConfig& config, const TraceMapping& mapping,
                    std::vector<TraceTurn>& turns, Workload& workload) {
  if (!waits_for_others(turns)) {
    sort_by_arrival(turns, workload);
    const bool has_prompts = !workload.token_begin.empty() || !workload.segment_begin.empty();
    if (!turns.empty() && (!has_prompts || mapping.counts_new_tokens)) {
      share_prompts_of_sessions(turns, mapping.counts_new_tokens, workload);
    }
    return;
  }
  if (!workload.token_begin.empty() || !config.request_log.empty()) {
    fail_config(
        config.where, "workload.trace.file",
        "its requests wait for each other in sessions; allowed: such traces without token ids and "
        "request_log");
  }
  make_sessions(turns, mapping.counts_new_tokens, workload);
}

// Keeps the first requests; the last session may lose its end.
void limit_requests(std::int64_t limit, Workload& workload) {
  const auto count = static_cast<std::size_t>(limit);
  if (limit == 0 || count >= workload.requests.size()) return;
  keep_first(count, workload);
  if (!workload.has_sessions()) return;
  const auto end = std::lower_bound(workload.session_begin.begin(), workload.session_begin.end(),
                                    static_cast<std::uint32_t>(count));
  workload.session_begin.erase(end, workload.session_begin.end());
  workload.session_begin.push_back(static_cast<std::uint32_t>(count));
  workload.delays.resize(count);
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

constexpr const char* kFormatOfChats = "it belongs to a JSON array of sharegpt conversations";

bool is_json(std::string_view body) { return body.starts_with('{') || body.starts_with('['); }

// The records of a trace: lines, or the JSON objects of another layout.
TraceLines records_of(const TraceLines& lines, std::string_view body, TraceFormat format) {
  if (!is_json(body)) return lines;
  const std::string_view first = first_json(body);
  const bool is_one_line = first.find('\n') == std::string_view::npos;
  const bool is_weka = format == TraceFormat::Auto ? is_weka_trace(first)  //
                                                   : format == TraceFormat::Weka;
  const bool is_telemetry = format == TraceFormat::Auto ? is_opentelemetry_trace(first)
                                                        : format == TraceFormat::OpenTelemetry;
  const TraceLines records = body.starts_with('{') && is_one_line ? lines : lines.with_objects();
  if (is_weka) return unfold_weka(records);
  return is_telemetry ? unfold_opentelemetry(records) : records;
}

// Whether the file has texts, which a tokenizer measures, and not numbers of tokens.
bool has_texts(std::string_view body, const TraceConfig& config) {
  if (config.format == TraceFormat::Custom) return true;
  if (!is_json(body)) return false;
  const bool is_array = body.starts_with('[');
  if (config.format == TraceFormat::ShareGpt && is_array) return true;
  if (config.format != TraceFormat::Auto && config.format != TraceFormat::ShareGpt) return false;
  const std::string_view first = first_json(body);
  if (is_weka_trace(first) || is_opentelemetry_trace(first)) return false;
  if (is_payload_document(first)) return true;
  return !has_counts(config, first) && (is_array || has_text(first));
}

// Checks the keys that only conversations use, or must have.
void check_chat_keys(const TraceConfig& config, bool has_chats) {
  const std::string name = "'" + config.file + "'";
  if (!has_chats) {
    const auto refuse = [&](const char* key) {
      fail_config(config.where, std::string("workload.trace.") + key,
                  "not used by " + name + "; " + kFormatOfChats);
    };
    if (!config.tokenizer.empty()) refuse("tokenizer");
    if (config.characters_per_token) refuse("characters_per_token");
    if (config.output_len) refuse("output_len");
    return;
  }
  if (config.tokenizer.empty() && !config.characters_per_token) {
    fail_config(config.where, "workload.trace.tokenizer",
                "missing; the lengths of conversations need the path of a tokenizer.json, or "
                "characters_per_token for an estimate");
  }
  if (!config.tokenizer.empty() && config.characters_per_token) {
    fail_config(config.where, "workload.trace.characters_per_token",
                "contradicts workload.trace.tokenizer; allowed: one of them");
  }
  if (!config.request_log.empty()) {
    fail_config(config.where, "workload.trace.request_log",
                "not used by conversations; it belongs to a trace with arrivals");
  }
}

}  // namespace

Workload read_trace(const TraceConfig& config, std::uint64_t seed) {
  return parse_trace(read_whole_file(config, config.file), config, seed);
}

Workload parse_trace(std::string_view text, const TraceConfig& config, std::uint64_t seed) {
  const std::string& path = config.file;
  const std::string_view body = without_byte_order_mark(text);
  const std::size_t first = body.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) fail_file(config, "'" + path + "' is empty");

  TraceLines lines(body, std::make_shared<const std::string>(path));
  const bool has_chats = has_texts(body.substr(first), config);
  check_chat_keys(config, has_chats);
  const auto check_jitter = [&](TraceFormat format) {
    if (!config.jitter || format == TraceFormat::Mooncake) return;
    fail_config(config.where, "workload.trace.jitter",
                "'" + path + "' is not a mooncake trace; it belongs to mooncake");
  };
  Workload workload;
  if (has_chats) {
    check_jitter(TraceFormat::ShareGpt);
    parse_chats(body.substr(first), lines, config, seed, workload);
    workload.has_arrivals = false;
    return workload;
  }
  workload.class_names = config.class_names;
  lines = records_of(lines, body.substr(first), config.format);
  const TraceMapping mapping = mapping_of(lines, config);
  check_jitter(mapping.format);
  std::vector<TraceTurn> turns = read_rows(lines, mapping, workload);
  if (workload.requests.empty()) fail_file(config, "'" + path + "' contains no request");
  if (!config.request_log.empty()) read_logged_arrivals(config, workload);
  order_requests(config, mapping, turns, workload);
  limit_requests(config.limit, workload);
  return workload;
}

void place_recorded_arrivals(const TraceConfig& config, std::uint64_t seed, Workload& workload) {
  std::vector<RequestSpec>& requests = workload.requests;
  METRONOME_CHECK(!requests.empty(), "a trace has at least one request");
  if (config.jitter) spread_buckets(seed, requests);
  // Later requests of sessions have no arrival.
  const std::size_t last = workload.has_sessions()
                               ? workload.session_begin[workload.num_sessions() - 1]
                               : requests.size() - 1;
  const TimeNs first = requests.front().arrival;
  const double last_s = to_seconds(requests[last].arrival - first) / config.rate_scale;
  if (last_s > static_cast<double>(kMaxArrivalSeconds)) {
    fail_config(config.where, "workload.trace.rate_scale",
                fmt::format("the last request would arrive after {} s; at most {} s",
                            std::to_string(last_s), kMaxArrivalSeconds));
  }
  std::size_t session = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    RequestSpec& request = requests[i];
    if (workload.has_sessions()) {
      if (i != workload.session_begin[session]) continue;
      ++session;
    }
    request.arrival -= first;
    if (config.rate_scale != 1.0) {
      request.arrival = std::llround(static_cast<double>(request.arrival) / config.rate_scale);
    }
  }
}

}  // namespace metronome
