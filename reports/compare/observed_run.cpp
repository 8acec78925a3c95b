// SPDX-License-Identifier: Apache-2.0
#include "reports/compare/observed_run.h"

#include <algorithm>
#include <fmt/core.h>
#include <fstream>
#include <map>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/names.h"
#include "reports/measured/measured_reader.h"

namespace metronome {
namespace {

constexpr const char* kAllowed =
    "a result folder of one run, the result of a benchmark's client, or a request log with "
    "queued_ts, first_token_ts and last_token_ts";

void refuse_run_number(const std::string& path, const ObservedRunOptions& options) {
  if (!options.run_number) return;
  throw ConfigError("--run: has no effect, as " + path +
                    " has one run; allowed: with the result of a benchmark's client");
}

// When the engine next planned a step. It sees requests that arrive during a step only then.
TimeNs queued_at(const RunRecord& record, TimeNs arrival) {
  std::size_t low = 0;
  std::size_t high = record.steps.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    record.steps.planned_at(middle) < arrival ? low = middle + 1 : high = middle;
  }
  return low == record.steps.size() ? arrival : record.steps.planned_at(low);
}

std::vector<TimeNs> gaps_of(const RunRecord& record, std::size_t request) {
  std::vector<TimeNs> gaps;
  TimeNs last = kNoTime;
  for (const TokenRun& run : record.runs_of(request)) {
    for (std::int32_t t = 0; t < run.num_steps; ++t) {
      const TimeNs now = record.steps.finished_at(static_cast<std::size_t>(run.first_step + t));
      if (last != kNoTime) gaps.push_back(now - last);
      last = now;
    }
  }
  return gaps;
}

ObservedRun observed_requests_of(StoredRun stored, bool from_queue) {
  ObservedRun run;
  run.counts_from_queue = from_queue;
  run.stored = std::move(stored);
  const RunRecord& record = run.stored->record;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    if (!request.completed()) {
      ++run.num_incomplete;
      continue;
    }
    ObservedRequest seen;
    seen.num_prompt_tokens = request.num_prompt_tokens;
    seen.num_output_tokens = request.num_output_tokens;
    seen.begin = from_queue ? queued_at(record, request.arrival) : request.arrival;
    seen.first_token = request.first_token;
    seen.last_token = request.last_token;
    seen.ttft_ns = seen.first_token - seen.begin;
    seen.e2el_ns = seen.last_token - seen.begin;
    seen.gaps = gaps_of(record, i);
    run.requests.push_back(std::move(seen));
  }
  return run;
}

ObservedRun read_folder(const std::string& path, bool from_queue) {
  const std::vector<std::string> folders = result_folders(path);
  if (folders.size() != 1) {
    throw ConfigError(
        fmt::format("{}: has the results of {} runs; allowed: one of them, such as {}", path,
                    folders.size(), folders.front()));
  }
  return observed_requests_of(read_result(folders.front()), from_queue);
}

// A row that is there twice would count twice.
void check_id(const JsonPlace& line, std::size_t i, std::map<std::string, std::size_t>& lines) {
  if (!line.has("request_id")) return;
  const JsonPlace id = line.at("request_id");
  const std::string text = id.json().dump();
  const auto [first, is_new] = lines.try_emplace(text, i + 1);
  if (is_new) return;
  id.fail(fmt::format("is {}, which line {} has already; allowed: every request once",
                      printable(text), first->second));
}

ObservedRun read_request_log(const std::string& path) {
  ObservedRun run;
  run.format = RunFormat::RequestLog;
  run.counts_from_queue = true;
  std::optional<TimeNs> start;
  std::map<std::string, std::size_t> lines;  // by the number or text of request_id
  for_each_json_line(path, kAllowed, [&](const JsonPlace& line, std::size_t i) {
    check_id(line, i, lines);
    ObservedRequest seen;
    seen.num_prompt_tokens = line.at("input_toks").count();
    seen.num_output_tokens = line.at("output_toks").count();
    seen.begin = line.at("queued_ts").seconds();
    if (line.has("scheduled_ts")) seen.scheduled = line.at("scheduled_ts").seconds();
    seen.first_token = line.at("first_token_ts").seconds();
    seen.last_token = line.at("last_token_ts").seconds();
    if (seen.first_token < seen.begin) line.at("first_token_ts").fail("is before queued_ts");
    if (seen.scheduled != kNoTime && seen.scheduled < seen.begin) {
      line.at("scheduled_ts").fail("is before queued_ts");
    }
    if (seen.scheduled > seen.first_token) line.at("scheduled_ts").fail("is after first_token_ts");
    if (seen.last_token < seen.first_token) line.at("last_token_ts").fail("is before the first");
    if (seen.num_output_tokens < 1) line.at("output_toks").fail("is 0; allowed: at least 1");
    start = std::min(start.value_or(seen.begin), seen.begin);
    seen.ttft_ns = seen.first_token - seen.begin;
    seen.e2el_ns = seen.last_token - seen.begin;
    run.requests.push_back(std::move(seen));
  });
  for (ObservedRequest& request : run.requests) {
    request.begin -= *start;
    if (request.scheduled != kNoTime) request.scheduled -= *start;
    request.first_token -= *start;
    request.last_token -= *start;
  }
  return run;
}

ObservedRequest observed_request(const MeasuredRequest& measured) {
  ObservedRequest seen;
  seen.num_prompt_tokens = measured.num_prompt_tokens;
  seen.num_output_tokens = measured.num_output_tokens;
  seen.begin = measured.start;
  seen.ttft_ns = measured.ttft_ns;
  seen.e2el_ns = measured.e2el_ns;
  seen.gaps = measured.gaps;
  if (measured.start == kNoTime) return seen;
  if (measured.ttft_ns != kNoTime) seen.first_token = measured.start + measured.ttft_ns;
  if (measured.e2el_ns != kNoTime) seen.last_token = measured.start + measured.e2el_ns;
  return seen;
}

ObservedRun read_client_result(const std::string& path, const ObservedRunOptions& options) {
  return observed_run_of(read_measured_run(path, options.run_number));
}

bool is_request_log_line(const std::string& line) {
  return line.find("\"first_token_ts\"") != std::string::npos;
}

ObservedRun read_run_file(const std::string& path, const ObservedRunOptions& options) {
  std::string line;
  {
    std::ifstream file = open_input(path, kAllowed);
    next_line(file, line);
    if (file.bad()) fail_input(path, kAllowed);
  }
  if (!is_request_log_line(line)) return read_client_result(path, options);
  refuse_run_number(path, options);
  return read_request_log(path);
}

ObservedRun read_run_folder(const std::string& path, const ObservedRunOptions& options) {
  if (!has_results(path) && is_measured(path)) return read_client_result(path, options);
  refuse_run_number(path, options);
  return read_folder(path, options.from_queue);
}

// From the first request's begin to the last token.
TimeNs observed_duration(const std::vector<ObservedRequest>& requests) {
  TimeNs first = kNever;
  TimeNs last = 0;
  for (const ObservedRequest& request : requests) {
    first = std::min(first, request.begin);
    last = std::max(last, request.last_token);
  }
  return last - first;
}

// Checks a run and adds what follows from its requests.
void finish(std::string path, ObservedRun& run) {
  run.path = std::move(path);
  if (run.num_completed() == 0) {
    throw ConfigError(
        run.path + ": has no completed request" +
        (run.num_incomplete == 0 ? "" : ", and " + count_text(run.num_incomplete, "other")) +
        "; allowed: at least one");
  }
  if (run.format != RunFormat::Client) run.duration_ns = observed_duration(run.requests);
}

}  // namespace

std::int64_t ObservedRun::num_completed() const {
  return client ? client->num_completed : static_cast<std::int64_t>(requests.size());
}

ObservedRun observed_run_of(MeasuredRun measured) {
  ObservedRun run;
  run.path = measured.path;
  run.model = measured.model;
  run.format = RunFormat::Client;
  for (const MeasuredRequest& request : measured.requests) {
    if (request.error.empty()) run.requests.push_back(observed_request(request));
  }
  run.duration_ns = measured.duration_ns;
  run.num_incomplete = measured.num_failed;
  run.client = std::move(measured);
  return run;
}

ObservedRun observed_run_of(StoredRun stored, bool from_queue) {
  std::string path = stored.folder;
  ObservedRun run = observed_requests_of(std::move(stored), from_queue);
  finish(std::move(path), run);
  return run;
}

ObservedRun read_observed_run(const std::string& path, const ObservedRunOptions& options) {
  ObservedRun run = is_folder(path) ? read_run_folder(path, options) : read_run_file(path, options);
  finish(path, run);
  return run;
}

}  // namespace metronome
