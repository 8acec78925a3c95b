// SPDX-License-Identifier: Apache-2.0
// inference-perf's reports, in seconds: per_request_lifecycle_metrics.json, a file for each stage,
// and a summary. Only the files of stages have rates; requests have no stage, but are in the order
// of the stages. Read with inference-perf 0.1 to 0.7.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/files.h"
#include "core/base/number_chars.h"
#include "core/base/number_text.h"
#include "reports/measured/formats.h"
#include "reports/measured/reading.h"

namespace metronome {
namespace {

bool is_lifecycle(const Json& value) {
  return value.contains("start_time") && value.contains("end_time") && value.contains("info");
}

bool is_lifecycle_summary(const Json& value) {
  return value.contains("load_summary") && value.contains("successes");
}

// The number of tokens; 0.3 and later have an object for each side.
std::int32_t tokens_of(const JsonPlace& info, const char* flat, std::string_view nested) {
  std::optional<JsonPlace> count = value_at(info, nested);
  if (!count) count = value_if(info, flat);
  return count ? token_count(*count) : kUnknownTokens;
}

void read_token_times(const JsonPlace& times, MeasuredRequest& request) {
  TimeNs last = kNoTime;
  times.for_each([&](const JsonPlace& place) {
    const TimeNs time = time_in_seconds(place);
    if (time < std::max(last, request.start)) place.fail("is before the token before it");
    add_token_time(time, last, request);
  });
}

MeasuredRequest read_lifecycle(const JsonPlace& place) {
  MeasuredRequest request;
  request.start = time_in_seconds(place.at("start_time"));
  if (const std::optional<JsonPlace> error = value_if(place, "error")) {
    add_failure(request, text_if(*error, "error_type").value_or("error"));
    return request;
  }
  const TimeNs end = time_in_seconds(place.at("end_time"));
  if (end < request.start) place.at("end_time").fail("is before start_time");
  request.e2el_ns = end - request.start;
  const JsonPlace info = place.at("info");
  request.num_prompt_tokens = tokens_of(info, "input_tokens", "request_metrics.text.input_tokens");
  request.num_output_tokens = tokens_of(info, "output_tokens", "response_metrics.output_tokens");
  std::optional<JsonPlace> times = value_at(info, "response_metrics.output_token_times");
  if (!times) times = value_if(info, "output_token_times");
  if (times) read_token_times(*times, request);
  return request;
}

void set_stage_figures(const JsonPlace& summary, MeasuredRun& run) {
  const JsonPlace successes = summary.at("successes");
  const auto set = [&](std::string_view path, const char* name) {
    if (const std::optional<JsonPlace> statistics = value_at(successes, path)) {
      set_distribution(*statistics, name, kMsPerSecond, run.figures);
    }
  };
  set("latency.time_to_first_token", "ttft");
  set("latency.time_per_output_token", "tpot");
  set("latency.inter_token_latency", "itl");
  set("latency.request_latency", "e2el");
  const auto throughput = value_if(successes, "throughput");
  const auto set_rate = [&](const char* key, const char* figure) {
    const std::optional<double> rate = throughput ? number_if(*throughput, key) : std::nullopt;
    if (rate) run.figures.set(figure, *rate);
  };
  set_rate("requests_per_sec", "request_throughput");
  set_rate("output_tokens_per_sec", "output_throughput");
  set_rate("total_tokens_per_sec", "total_token_throughput");
  run.num_completed = successes.at("count").count();
  if (const auto failures = value_if(summary, "failures")) {
    run.num_failed = count_if(*failures, "count").value_or(0);
  }
  const auto mean_of = [&](const char* key) -> std::optional<double> {
    const std::optional<JsonPlace> lengths = value_if(successes, key);
    return lengths ? number_if(*lengths, "mean") : std::nullopt;
  };
  run.mean_prompt_tokens = mean_of("prompt_len");
  if (!run.mean_prompt_tokens) run.mean_prompt_tokens = mean_of("prompt_tokens");
  run.mean_output_tokens = mean_of("output_len");
}

MeasuredRun stage_run(const JsonPlace& summary) {
  MeasuredRun run;
  run.client = "inference-perf";
  const JsonPlace load = summary.at("load_summary");
  run.request_rate = number_if(load, "requested_rate");
  run.max_concurrency = count_if(load, "concurrency");
  if (const auto seconds = value_if(summary, "benchmark_time_seconds")) {
    run.duration_ns = time_in_seconds(*seconds);
  }
  return run;
}

// The number in "stage_12_lifecycle_metrics.json"; nullopt: the file is of no stage.
std::optional<int> stage_number(const std::string& path) {
  constexpr std::string_view kBefore = "stage_";
  const std::size_t slash = path.rfind('/');
  std::string_view name = std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
  const std::size_t at = name.find(kBefore);
  if (at == std::string_view::npos) return std::nullopt;
  name.remove_prefix(at + kBefore.size());
  int number = 0;
  const auto [end, error] = read_number(name.data(), name.data() + name.size(), number, 10);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

struct StageReports {
  std::vector<MeasuredRequest> requests;
  std::map<int, JsonPlace> stages;
  std::vector<JsonPlace> summaries;  // of all stages
  bool has_requests = false;
};

StageReports collect_reports(const MeasuredFiles& files) {
  StageReports reports;
  for (const MeasuredFile& file : files) {
    const JsonPlace place = file.documents.front().place();
    if (place.json().is_array()) {
      reports.has_requests = true;
      place.for_each(
          [&](const JsonPlace& entry) { reports.requests.push_back(read_lifecycle(entry)); });
    } else if (const auto stage = stage_number(file.path)) {
      reports.stages.emplace(*stage, place);
    } else {
      reports.summaries.push_back(place);
    }
  }
  std::stable_sort(
      reports.requests.begin(), reports.requests.end(),
      [](const MeasuredRequest& a, const MeasuredRequest& b) { return a.start < b.start; });
  return reports;
}

bool has_token_gaps(const MeasuredRun& run) {
  return std::any_of(run.requests.begin(), run.requests.end(),
                     [](const MeasuredRequest& request) { return !request.gaps.empty(); });
}

void add_lifecycles(std::vector<MeasuredRequest> requests, MeasuredRun& run) {
  run.requests = std::move(requests);
  run.has_gaps = has_token_gaps(run);
  if (!run.has_gaps) run.lacks.push_back("its answers were not streamed: no TTFT and no ITL");
}

void add_stage_figures(const JsonPlace& summary, MeasuredRun& run) {
  set_stage_figures(summary, run);
  run.lacks.push_back("it has no requests, which report.request_lifecycle.per_request writes");
}

std::int64_t num_in_stage(const JsonPlace& summary) {
  return count_if(summary.at("load_summary"), "count").value_or(0);
}

// A run for each stage. Stages follow each other, so that each has as many of the requests, by
// their start, as its own file says.
std::vector<MeasuredRun> split_by_stage(StageReports& reports) {
  std::int64_t num_in_stages = 0;
  for (const auto& [stage, summary] : reports.stages) num_in_stages += num_in_stage(summary);
  const bool is_split = num_in_stages == static_cast<std::int64_t>(reports.requests.size());
  std::vector<MeasuredRun> runs;
  auto next = reports.requests.begin();
  for (const auto& [stage, summary] : reports.stages) {
    MeasuredRun run = stage_run(summary);
    if (is_split) {
      const auto end = next + num_in_stage(summary);
      add_lifecycles({next, end}, run);
      next = end;
    } else {
      add_stage_figures(summary, run);
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace

bool is_inference_perf(const Json& value) {
  return is_lifecycle_summary(value) ||
         (value.is_array() && !value.empty() && is_lifecycle(value.front()));
}

std::vector<MeasuredRun> read_inference_perf(const MeasuredFiles& files) {
  StageReports reports = collect_reports(files);
  if (!reports.stages.empty()) return split_by_stage(reports);
  std::vector<MeasuredRun> runs;
  if (reports.has_requests) {
    MeasuredRun run;
    run.client = "inference-perf";
    if (!reports.summaries.empty()) run = stage_run(reports.summaries.front());
    add_lifecycles(std::move(reports.requests), run);
    runs.push_back(std::move(run));
  } else {
    for (const JsonPlace& summary : reports.summaries) {
      runs.push_back(stage_run(summary));
      add_stage_figures(summary, runs.back());
    }
  }
  return runs;
}

}  // namespace metronome
