// SPDX-License-Identifier: Apache-2.0
#include "reports/measured/metric_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "reports/measured/reading.h"

namespace metronome {
namespace {

struct MetricRow {
  const char* metric;
  const char* distribution;  // of core/metrics/figures.cpp
};
// AIPerf 0.1 has the first token under a short name.
constexpr std::array<MetricRow, 5> kMetricDistributions = {{{"time_to_first_token", "ttft"},
                                                            {"ttft", "ttft"},
                                                            {"request_latency", "e2el"},
                                                            {"inter_token_latency", "tpot"},
                                                            {"inter_chunk_latency", "itl"}}};
constexpr std::array<MetricRow, 3> kMetricThroughputs = {
    {{"request_throughput", "request_throughput"},
     {"output_token_throughput", "output_throughput"},
     {"total_token_throughput", "total_token_throughput"}}};

std::optional<double> metric_mean(const JsonPlace& metrics, const char* metric) {
  const std::optional<JsonPlace> object = value_if(metrics, metric);
  return object ? number_if(*object, "avg") : std::nullopt;
}

std::int64_t metric_count(const JsonPlace& metrics, const char* metric) {
  const double number = metric_mean(metrics, metric).value_or(0);
  constexpr double kMost = 1e15;
  return number >= 0 && number <= kMost ? std::llround(number) : 0;
}

}  // namespace

bool has_metric_summary(const Json& value) {
  return std::any_of(
      kMetricDistributions.begin(), kMetricDistributions.end(), [&](const MetricRow& row) {
        const Json* metric = value.find(row.metric);
        return metric != nullptr && metric->contains("unit") && metric->contains("avg");
      });
}

TimeNs metric_time(const JsonPlace& metric) {
  return time_in(metric.at("value"), unit_ns(metric.at("unit")));
}

void read_metric_summary(const JsonPlace& metrics, MeasuredRun& run) {
  for (const MetricRow& row : kMetricDistributions) {
    const std::optional<JsonPlace> metric = value_if(metrics, row.metric);
    if (!metric) continue;
    const double scale = unit_ns(metric->at("unit")) / static_cast<double>(kNsPerMs);
    set_distribution(*metric, row.distribution, scale, run.figures);
  }
  for (const MetricRow& row : kMetricThroughputs) {
    if (const auto number = metric_mean(metrics, row.metric)) {
      run.figures.set(row.distribution, *number);
    }
  }
  run.num_completed = metric_count(metrics, "request_count");
  run.num_failed = metric_count(metrics, "error_request_count");
  run.mean_prompt_tokens = metric_mean(metrics, "input_sequence_length");
  run.mean_output_tokens = metric_mean(metrics, "output_sequence_length");
  if (const std::optional<JsonPlace> duration = value_if(metrics, "benchmark_duration")) {
    if (duration->has("avg")) {
      run.duration_ns = time_in(duration->at("avg"), unit_ns(duration->at("unit")));
    }
  }
}

}  // namespace metronome
