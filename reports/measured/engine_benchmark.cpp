// SPDX-License-Identifier: Apache-2.0
// The report of an engine's own benchmark (engines/benchmark_tool.h): figures alone. Times to
// tokens are there with --streaming.
#include <fmt/core.h>
#include <string>
#include <utility>

#include "engines/benchmark_tool.h"
#include "reports/measured/formats.h"
#include "reports/measured/reading.h"

namespace metronome {
namespace {

constexpr const char* kRequests = "request_info";
constexpr const char* kPerformance = "performance";
constexpr const char* kStreaming = "streaming_metrics";

// Percentiles, and the mean under the name "average".
void set_percentiles(const JsonPlace& object, const char* key, const char* name,
                     FigureValues& figures) {
  const auto percentiles = value_if(object, key);
  if (!percentiles) return;
  Json statistics = percentiles->json();
  for (const auto& [theirs, ours] :
       {std::pair("average", "mean"), std::pair("minimum", "min"), std::pair("maximum", "max")}) {
    if (const auto number = number_if(*percentiles, theirs)) statistics[ours] = *number;
  }
  set_distribution(JsonPlace(key, statistics), name, 1, figures);
}

MeasuredRun read_report(const JsonPlace& report) {
  MeasuredRun run;
  run.client = kEngineBenchmark;
  const JsonPlace requests = report.at(kRequests);
  const JsonPlace performance = report.at(kPerformance);
  if (const auto engine = value_if(report, "engine")) {
    run.model = text_if(*engine, "model").value_or("");
  }
  run.num_completed = count_if(requests, "num_requests").value_or(0);
  run.mean_prompt_tokens = number_if(requests, "avg_input_length");
  run.mean_output_tokens = number_if(requests, "avg_output_length");
  if (const auto total = number_if(performance, "total_latency_ms")) {
    constexpr double kLongestMs = 1e11;
    if (*total > 0 && *total < kLongestMs) run.duration_ns = static_cast<TimeNs>(*total * 1e6);
  }
  for (const auto& [theirs, ours] :
       {std::pair("request_throughput_req_s", "request_throughput"),
        std::pair("system_output_throughput_tok_s", "output_throughput"),
        std::pair("system_total_throughput_tok_s", "total_token_throughput")}) {
    if (const auto rate = number_if(performance, theirs)) run.figures.set(ours, *rate);
  }
  set_percentiles(performance, "request_latency_percentiles_ms", "e2el", run.figures);
  if (const auto streaming = value_if(report, kStreaming)) {
    set_percentiles(*streaming, "ttft_percentiles", "ttft", run.figures);
    set_percentiles(*streaming, "tpot_percentiles", "tpot", run.figures);
  } else {
    run.lacks.push_back(fmt::format("it has no times to tokens, which {} writes with --streaming",
                                    kEngineBenchmark));
  }
  run.lacks.push_back("it has no requests");
  return run;
}

}  // namespace

bool is_engine_benchmark(const Json& value) {
  return value.is_object() && value.contains("world_info") && value.contains(kRequests) &&
         value.contains(kPerformance);
}

std::vector<MeasuredRun> read_engine_benchmark(const MeasuredFiles& files) {
  std::vector<MeasuredRun> runs;
  for (const MeasuredFile& file : files) {
    runs.push_back(read_report(file.documents.front().place()));
  }
  return runs;
}

}  // namespace metronome
