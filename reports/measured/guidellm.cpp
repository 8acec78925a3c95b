// SPDX-License-Identifier: Apache-2.0
// guidellm's benchmarks.json or .yaml: a benchmark for each rate or number of streams. Read with
// guidellm 0.1, whose requests have the gaps between tokens, and 0.2 to 0.8, whose requests have
// their first and last token alone.
#include <limits>
#include <optional>
#include <string>

#include "core/base/number_text.h"
#include "reports/measured/formats.h"
#include "reports/measured/reading.h"

namespace metronome {
namespace {

// The time from `start` to a later instant, both in seconds since 1970.
TimeNs time_after(TimeNs start, const JsonPlace& instant) {
  const TimeNs time = time_in_seconds(instant);
  if (time < start) instant.fail("is before its start");
  return time - start;
}

std::string guidellm_error(const JsonPlace& request, const char* status) {
  const std::optional<std::string> error = text_if(request, "error");
  if (error) return *error;
  const std::optional<JsonPlace> info = value_if(request, "info");
  return info ? text_if(*info, "error").value_or(status) : status;
}

// A request of 0.2 and later. Before 0.4 its times and counts were not in objects of their own.
MeasuredRequest read_guidellm_request(const JsonPlace& place, const std::string& status) {
  MeasuredRequest request;
  const JsonPlace timings = value_at(place, "info.timings").value_or(place);
  const auto start = value_of_any(timings, {"request_start", "start_time", "resolve_start"});
  if (start) request.start = time_in_seconds(*start);
  if (status != "successful") {
    add_failure(request, guidellm_error(place, status.c_str()));
    return request;
  }
  if (!start) timings.fail("has no start; allowed: the times of a complete request");
  if (const auto tokens = value_if(place, "prompt_tokens")) {
    request.num_prompt_tokens = token_count(*tokens);
  }
  if (const auto tokens = value_if(place, "output_tokens")) {
    request.num_output_tokens = token_count(*tokens);
  }
  const auto first =
      value_of_any(timings, {"first_token_iteration", "first_token_time", "first_iteration"});
  const auto last = value_of_any(timings, {"last_token_iteration", "last_token_time",
                                           "last_iteration", "request_end", "end_time"});
  if (first) request.ttft_ns = time_after(request.start, *first);
  if (last) request.e2el_ns = time_after(request.start, *last);
  return request;
}

void read_guidellm_requests(const JsonPlace& benchmark, MeasuredRun& run) {
  const JsonPlace requests = benchmark.at("requests");
  for (const char* status : {"successful", "errored", "incomplete"}) {
    const std::optional<JsonPlace> list = value_if(requests, status);
    if (!list) continue;
    list->for_each([&](const JsonPlace& place) {
      run.requests.push_back(read_guidellm_request(place, status));
    });
  }
}

std::int64_t total_of(const JsonPlace& benchmark, const char* status) {
  for (const char* path :
       {"metrics.request_totals", "scheduler_metrics.requests_made", "run_stats.requests_made"}) {
    const std::optional<JsonPlace> totals = value_at(benchmark, path);
    if (totals) return count_if(*totals, status).value_or(0);
  }
  return 0;
}

std::optional<JsonPlace> distribution_of(const JsonPlace& benchmark, const char* metric) {
  return value_at(benchmark, std::string("metrics.") + metric + ".successful");
}

// guidellm's ITL is the mean gap of a request, weighted by its gaps: only its mean is ours. Its
// TPOT includes the first token.
void read_guidellm_figures(const JsonPlace& benchmark, MeasuredRun& run) {
  const auto set = [&](const char* metric, const char* name, double scale) {
    const std::optional<JsonPlace> distribution = distribution_of(benchmark, metric);
    if (!distribution) return;
    set_distribution(*distribution, name, scale, run.figures);
    if (const auto percentiles = value_if(*distribution, "percentiles")) {
      set_distribution(*percentiles, name, scale, run.figures);
    }
  };
  set("time_to_first_token_ms", "ttft", 1);
  set("request_latency", "e2el", kMsPerSecond);
  const auto mean_of = [&](const char* metric) -> std::optional<double> {
    const std::optional<JsonPlace> distribution = distribution_of(benchmark, metric);
    return distribution ? number_if(*distribution, "mean") : std::nullopt;
  };
  if (const auto mean = mean_of("inter_token_latency_ms")) run.figures.set("mean_itl_ms", *mean);
  run.mean_prompt_tokens = mean_of("prompt_token_count");
  run.mean_output_tokens = mean_of("output_token_count");
  run.num_completed = total_of(benchmark, "successful");
  run.num_failed = total_of(benchmark, "errored") + total_of(benchmark, "incomplete");
}

// Before 0.4 a benchmark had its start and end alone.
TimeNs benchmark_duration(const JsonPlace& benchmark) {
  if (const auto seconds = value_if(benchmark, "duration")) return time_in_seconds(*seconds);
  return time_after(time_in_seconds(benchmark.at("start_time")), benchmark.at("end_time"));
}

void read_guidellm_load(const JsonPlace& benchmark, MeasuredRun& run) {
  for (const char* path : {"config.strategy", "args.strategy", "scheduler.strategy"}) {
    const std::optional<JsonPlace> strategy = value_at(benchmark, path);
    if (!strategy) continue;
    run.request_rate = number_if(*strategy, "rate");
    run.max_concurrency = count_if(*strategy, "max_concurrency");
    if (const auto streams = count_if(*strategy, "streams")) run.max_concurrency = streams;
    const std::string kind = text_if(*strategy, "type_").value_or("");
    if (kind == "synchronous") run.max_concurrency = 1;
    if (kind == "throughput") run.request_rate = std::numeric_limits<double>::infinity();
    return;
  }
}

void read_guidellm_model(const JsonPlace& report, const JsonPlace& benchmark, MeasuredRun& run) {
  for (const auto& [object, path] :
       {std::pair(benchmark, "config.backend"), std::pair(report, "args"),
        std::pair(report, "config.backend"), std::pair(benchmark, "worker"),
        std::pair(benchmark, "benchmarker.backend")}) {
    const std::optional<JsonPlace> place = value_at(object, path);
    if (!place) continue;
    for (const char* key : {"model", "backend_model"}) {
      if (const auto model = text_if(*place, key)) {
        run.model = *model;
        return;
      }
    }
  }
}

MeasuredRun read_benchmark(const JsonPlace& report, const JsonPlace& benchmark) {
  MeasuredRun run;
  run.client = "guidellm";
  const std::optional<JsonPlace> metadata = value_if(report, "metadata");
  const auto version = metadata ? text_if(*metadata, "guidellm_version") : std::nullopt;
  if (version) run.client += " " + *version;
  read_guidellm_load(benchmark, run);
  read_guidellm_model(report, benchmark, run);
  read_guidellm_requests(benchmark, run);
  const std::int64_t num_completed = total_of(benchmark, "successful");
  if (run.requests.empty()) {
    if (num_completed == 0) return run;
    read_guidellm_figures(benchmark, run);
    run.duration_ns = benchmark_duration(benchmark);
    run.lacks.push_back("it has no requests, as its sample of them is empty");
    return run;
  }
  const std::int64_t num_all =
      num_completed + total_of(benchmark, "errored") + total_of(benchmark, "incomplete");
  const auto num_listed = static_cast<std::int64_t>(run.requests.size());
  if (num_all > num_listed) {
    run.lacks.push_back("it lists a sample of " + grouped_text(num_listed) + " of its " +
                        grouped_text(num_all) + " requests");
  }
  run.lacks.push_back("it has the first and last token of each request: no ITL");
  return run;
}

// A result of 0.1. Its first token is a duration.
MeasuredRequest read_old_result(const JsonPlace& result) {
  MeasuredRequest request;
  request.num_prompt_tokens = token_count(result.at("prompt_token_count"));
  request.num_output_tokens = token_count(result.at("output_token_count"));
  request.start = time_in_seconds(result.at("start_time"));
  if (const auto first = value_if(result, "first_token_time")) {
    request.ttft_ns = request.e2el_ns = time_in_seconds(*first);
  }
  result.at("decode_times").at("data").for_each([&](const JsonPlace& gap) {
    request.gaps.push_back(time_in_seconds(gap));
    request.e2el_ns += request.gaps.back();
  });
  return request;
}

MeasuredRun read_old_benchmark(const JsonPlace& report, const JsonPlace& benchmark) {
  MeasuredRun run;
  run.client = "guidellm 0.1";
  run.has_gaps = true;
  run.request_rate = number_if(benchmark, "rate");
  const std::string mode = text_if(benchmark, "mode").value_or("");
  if (mode == "synchronous") run.max_concurrency = 1;
  if (mode == "throughput") run.request_rate = std::numeric_limits<double>::infinity();
  if (const auto args = value_if(report, "args")) {
    run.model = text_if(*args, "model").value_or("");
  }
  benchmark.at("results").for_each(
      [&](const JsonPlace& result) { run.requests.push_back(read_old_result(result)); });
  if (const auto errors = value_if(benchmark, "errors")) {
    errors->for_each([&](const JsonPlace& error) {
      MeasuredRequest request;
      add_failure(request, text_if(error, "message").value_or(""));
      run.requests.push_back(std::move(request));
    });
  }
  return run;
}

bool is_old_report(const Json& value) {
  return value.is_object() && value.contains("mode") && value.contains("results");
}

void read_report(const JsonPlace& report, std::vector<MeasuredRun>& runs) {
  report.at("benchmarks").for_each([&](const JsonPlace& benchmark) {
    if (is_old_report(benchmark.json())) {
      runs.push_back(read_old_benchmark(report, benchmark));
    } else if (benchmark.has("benchmarks")) {
      read_report(benchmark, runs);  // 0.1 has a list of reports
    } else {
      runs.push_back(read_benchmark(report, benchmark));
    }
  });
}

}  // namespace

bool is_guidellm(const Json& value) {
  const Json* benchmarks = value.find("benchmarks");
  if (benchmarks == nullptr || !benchmarks->is_array()) return false;
  if (benchmarks->empty()) return value.contains("metadata");
  const Json& first = benchmarks->front();
  return first.contains("benchmarks") || is_old_report(first) ||
         (first.contains("requests") && first.contains("metrics"));
}

std::vector<MeasuredRun> read_guidellm(const MeasuredFiles& files) {
  std::vector<MeasuredRun> runs;
  for (const MeasuredFile& file : files) {
    for (const MeasuredDocument& document : file.documents) {
      const JsonPlace report = document.place();
      read_report(report, runs);
    }
  }
  return runs;
}

}  // namespace metronome
