// SPDX-License-Identifier: Apache-2.0
#include "reports/compare/observed_run.h"

#include <algorithm>
#include <fmt/core.h>
#include <fstream>
#include <map>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/names.h"

namespace metronome {
namespace {

constexpr const char* kAllowed =
    "a result folder of one run, the JSON of vLLM's benchmark with --save-detailed, or a request "
    "log with queued_ts, first_token_ts and last_token_ts";

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

ObservedRun read_folder(const std::string& path, bool from_queue) {
  const std::vector<std::string> folders = result_folders(path);
  if (folders.size() != 1) {
    throw ConfigError(
        fmt::format("{}: has the results of {} runs; allowed: one of them, such as {}", path,
                    folders.size(), folders.front()));
  }
  ObservedRun run;
  run.counts_from_queue = from_queue;
  run.stored = read_result(folders.front());
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

// Each list has one entry per request; `errors` has a text for failed requests.
ObservedRun read_vllm_bench(const JsonPlace& root) {
  ObservedRun run;
  run.format = RunFormat::VllmBench;
  if (root.has("model_id")) run.model = root.at("model_id").text_or_empty();
  run.duration_ns = root.at("duration").seconds();
  root.at("ttfts").for_each([&](const JsonPlace& ttft) {
    ObservedRequest seen;
    seen.ttft_ns = ttft.seconds();
    run.requests.push_back(std::move(seen));
  });
  const std::size_t num_requests = run.requests.size();
  const auto for_each_request = [&](const char* key, const auto& visit) {
    std::size_t i = 0;
    root.at(key).for_each([&](const JsonPlace& place) {
      if (i < num_requests) visit(place, run.requests[i]);
      ++i;
    });
    if (i != num_requests) {
      root.at(key).fail(
          fmt::format("has {} entries; allowed: as many as ttfts, {}", i, num_requests));
    }
  };
  for_each_request("input_lens", [](const JsonPlace& place, ObservedRequest& seen) {
    seen.num_prompt_tokens = place.count();
  });
  for_each_request("output_lens", [](const JsonPlace& place, ObservedRequest& seen) {
    seen.num_output_tokens = place.count();
  });
  for_each_request("itls", [](const JsonPlace& place, ObservedRequest& seen) {
    place.for_each([&](const JsonPlace& gap) { seen.gaps.push_back(gap.seconds()); });
    seen.e2el_ns = seen.ttft_ns;
    for (const TimeNs gap : seen.gaps) seen.e2el_ns += gap;
  });
  if (root.has("start_times")) {
    TimeNs first = kNever;
    for_each_request("start_times", [&](const JsonPlace& place, ObservedRequest& seen) {
      seen.begin = place.seconds();
      first = std::min(first, seen.begin);
    });
    for (ObservedRequest& request : run.requests) {
      request.begin -= first;
      request.first_token = request.begin + request.ttft_ns;
      request.last_token = request.begin + request.e2el_ns;
    }
  }
  std::vector<bool> is_failed(num_requests);
  if (root.has("errors")) {
    std::size_t i = 0;
    for_each_request("errors", [&](const JsonPlace& place, ObservedRequest&) {
      is_failed[i++] = !place.text_or_empty().empty();
    });
  }
  std::size_t i = 0;
  std::erase_if(run.requests, [&](const ObservedRequest& request) {
    return is_failed[i++] || request.num_output_tokens < 1;
  });
  run.num_incomplete = static_cast<std::int64_t>(num_requests - run.requests.size());
  return run;
}

ObservedRun read_run_file(const std::string& path) {
  std::ifstream file = open_input(path, kAllowed);
  std::string line;
  next_line(file, line);
  if (file.bad()) fail_input(path, kAllowed);
  if (line.find("\"first_token_ts\"") != std::string::npos) return read_request_log(path);
  const Json json = read_json_file(path, kAllowed);
  if (!json.is_object() || !json.contains("ttfts")) {
    throw ConfigError(path + ": has neither ttfts nor first_token_ts; allowed: " + kAllowed);
  }
  return read_vllm_bench(JsonPlace(path, json));
}

}  // namespace

ObservedRun read_observed_run(const std::string& path, bool from_queue) {
  ObservedRun run = is_folder(path) ? read_folder(path, from_queue) : read_run_file(path);
  run.path = path;
  if (run.requests.empty()) {
    throw ConfigError(path + ": has no completed request; allowed: at least one");
  }
  if (run.format != RunFormat::VllmBench) {
    TimeNs first = kNever;
    TimeNs last = 0;
    for (const ObservedRequest& request : run.requests) {
      first = std::min(first, request.begin);
      last = std::max(last, request.last_token);
    }
    run.duration_ns = last - first;
  }
  return run;
}

}  // namespace metronome
