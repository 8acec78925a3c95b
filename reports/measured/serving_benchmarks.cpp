// SPDX-License-Identifier: Apache-2.0
// Results of `vllm bench serve` (before 0.10: benchmark_serving.py) and of SGLang's bench_serving.
// Both have a list for each fact of the requests: ttfts, itls, input_lens, ... in seconds and
// tokens, and figures as STATISTIC_METRIC_ms. Read with vLLM 0.6 to 0.33 and SGLang 0.3 to 0.5.23.
#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <limits>
#include <string>

#include "core/base/distribution.h"
#include "core/base/number_text.h"
#include "reports/measured/formats.h"
#include "reports/measured/reading.h"

namespace metronome {
namespace {

constexpr std::array kBenchStatistics = {"mean", "median", "p50", "p90", "p95", "p99", "std"};

struct BenchMetric {
  std::string_view in_file;
  std::string_view of_figure;
};
constexpr std::array<BenchMetric, 5> kBenchMetrics = {{{"ttft", "ttft"},
                                                       {"tpot", "tpot"},
                                                       {"itl", "itl"},
                                                       {"e2el", "e2el"},
                                                       {"e2e_latency", "e2el"}}};

// A list of `vllm bench sweep serve` has several runs.
template <class Visit>
void for_each_bench(const MeasuredFiles& files, const Visit& visit) {
  for (const MeasuredFile& file : files) {
    for (const MeasuredDocument& document : file.documents) {
      if (document.json.is_array()) {
        document.place().for_each(visit);
      } else {
        visit(document.place());
      }
    }
  }
}

const Json& first_bench(const Json& value) {
  return value.is_array() && !value.empty() ? value.front() : value;
}

// Calls visit(place, request) for the entry of each request in the list.
template <class Visit>
void for_each_entry(const JsonPlace& root, const char* key, MeasuredRun& run, const Visit& visit) {
  const JsonPlace list = root.at(key);
  const std::size_t num_requests = run.requests.size();
  std::size_t i = 0;
  list.for_each([&](const JsonPlace& place) {
    if (i < num_requests) visit(place, run.requests[i]);
    ++i;
  });
  if (i == num_requests) return;
  list.fail(fmt::format("has {} entries; allowed: as many as ttfts, {}", i, num_requests));
}

void read_itls(const JsonPlace& root, MeasuredRun& run) {
  run.has_gaps = true;
  for_each_entry(root, "itls", run, [](const JsonPlace& place, MeasuredRequest& request) {
    place.for_each([&](const JsonPlace& gap) { request.gaps.push_back(time_in_seconds(gap)); });
    request.e2el_ns = request.ttft_ns;
    for (const TimeNs gap : request.gaps) request.e2el_ns += gap;
  });
}

void read_latencies(const JsonPlace& root, MeasuredRun& run) {
  for_each_entry(root, "latencies", run, [](const JsonPlace& place, MeasuredRequest& request) {
    const TimeNs latency = time_in_seconds(place);
    // The client rounds both sums; a request that failed has 0.
    if (latency >= request.ttft_ns) request.e2el_ns = latency;
  });
}

void note_errors(const JsonPlace& root, MeasuredRun& run) {
  if (value_if(root, "errors")) {
    for_each_entry(root, "errors", run, [](const JsonPlace& place, MeasuredRequest& request) {
      const std::string error = place.text_or_empty();
      if (!error.empty()) add_failure(request, error);
    });
  }
  for (MeasuredRequest& request : run.requests) {
    if (request.num_output_tokens < 1 && request.error.empty()) add_failure(request, "no tokens");
  }
}

void read_bench_requests(const JsonPlace& root, MeasuredRun& run) {
  root.at("ttfts").for_each([&](const JsonPlace& ttft) {
    MeasuredRequest request;
    request.ttft_ns = request.e2el_ns = time_in_seconds(ttft);
    run.requests.push_back(std::move(request));
  });
  for_each_entry(root, "input_lens", run, [](const JsonPlace& place, MeasuredRequest& request) {
    request.num_prompt_tokens = token_count(place);
  });
  for_each_entry(root, "output_lens", run, [](const JsonPlace& place, MeasuredRequest& request) {
    request.num_output_tokens = token_count(place);
  });
  read_itls(root, run);
  if (value_if(root, "latencies")) read_latencies(root, run);
  if (value_if(root, "start_times")) {
    for_each_entry(root, "start_times", run, [](const JsonPlace& place, MeasuredRequest& request) {
      request.start = time_in_seconds(place);
    });
  } else {
    run.lacks.push_back("it has no start times: when requests arrived is unknown");
  }
  note_errors(root, run);
  const auto num_listed = static_cast<std::int64_t>(run.requests.size());
  const std::int64_t num_told =
      count_if(root, "completed").value_or(0) + count_if(root, "failed").value_or(0);
  if (num_told > num_listed) {
    run.lacks.push_back("it lists " + grouped_text(num_listed) + " of its " +
                        grouped_text(num_told) + " requests");
  }
}

// vLLM 0.32 keeps this list also without details. Failed requests have a latency, too.
void describe_latencies(const JsonPlace& root, MeasuredRun& run) {
  if (!value_if(root, "latencies") || run.num_failed > 0) return;
  std::vector<double> sample;
  root.at("latencies").for_each([&](const JsonPlace& place) {
    sample.push_back(static_cast<double>(time_in_seconds(place)));
  });
  const Distribution latency = describe(sample);
  for (const Statistic& statistic : statistics()) {
    run.figures.set(std::string(statistic.name) + "_e2el_ms", latency.*statistic.member);
  }
}

void read_bench_figures(const JsonPlace& root, MeasuredRun& run) {
  run.num_completed = root.at("completed").count();
  run.num_failed = count_if(root, "failed").value_or(0);
  describe_latencies(root, run);
  for (const BenchMetric& metric : kBenchMetrics) {
    for (const char* statistic : kBenchStatistics) {
      const std::optional<double> number =
          number_if(root, std::string(statistic) + "_" + std::string(metric.in_file) + "_ms");
      const std::string name = statistic == std::string_view("median") ? "p50" : statistic;
      if (number) run.figures.set(name + "_" + std::string(metric.of_figure) + "_ms", *number);
    }
  }
  for (const char* key : {"request_throughput", "output_throughput", "total_token_throughput"}) {
    if (const std::optional<double> number = number_if(root, key)) run.figures.set(key, *number);
  }
  if (const std::optional<double> number = number_if(root, "total_throughput")) {
    run.figures.set("total_token_throughput", *number);
  }
  const auto mean_of = [&](const char* key) -> std::optional<double> {
    const std::optional<double> total = number_if(root, key);
    if (!total || run.num_completed == 0) return std::nullopt;
    return *total / static_cast<double>(run.num_completed);
  };
  run.mean_prompt_tokens = mean_of("total_input_tokens");
  run.mean_output_tokens = mean_of("total_output_tokens");
}

MeasuredRun read_bench_run(const JsonPlace& root, const char* client, const char* details) {
  MeasuredRun run;
  run.client = root.has("metronome_schema") ? "metronome bench-serve" : client;
  run.model = text_if(root, "model_id").value_or("");
  run.request_rate = number_if(root, "request_rate");
  const std::optional<JsonPlace> rate = value_if(root, "request_rate");
  const bool is_infinite =
      rate && (rate->json() == Json("inf") || (rate->json().is_number() && !run.request_rate));
  if (is_infinite) run.request_rate = std::numeric_limits<double>::infinity();
  run.max_concurrency = count_if(root, "max_concurrency");
  if (root.has("total_input_sequences")) {
    root.at("total_input_sequences")
        .fail(
            "the benchmark asked for embeddings, which have no tokens; allowed: a benchmark of "
            "generated texts");
  }
  run.duration_ns = time_in_seconds(root.at("duration"));
  if (root.has("ttfts")) {
    read_bench_requests(root, run);
  } else {
    read_bench_figures(root, run);
    run.lacks.push_back(std::string("it has no requests, which ") + details + " writes");
  }
  return run;
}

std::vector<MeasuredRun> read_bench_runs(const MeasuredFiles& files, const char* client,
                                         const char* details) {
  std::vector<MeasuredRun> runs;
  for_each_bench(
      files, [&](const JsonPlace& root) { runs.push_back(read_bench_run(root, client, details)); });
  return runs;
}

}  // namespace

bool is_sglang_bench(const Json& value) {
  const Json& run = first_bench(value);
  if (run.contains("mean_e2e_latency_ms") || run.contains("total_output_tokens_retokenized")) {
    return true;
  }
  const Json* backend = run.find("backend");
  return backend != nullptr && backend->is_string() && backend->string().starts_with("sglang") &&
         !run.contains("model_id") && is_vllm_bench(value);
}

bool is_vllm_bench(const Json& value) {
  const Json& run = first_bench(value);
  return run.contains("ttfts") ||
         (run.contains("completed") && run.contains("request_throughput") &&
          run.contains("total_input_tokens"));
}

std::vector<MeasuredRun> read_sglang_bench(const MeasuredFiles& files) {
  return read_bench_runs(files, "SGLang's benchmark", "--output-details");
}

std::vector<MeasuredRun> read_vllm_bench(const MeasuredFiles& files) {
  return read_bench_runs(files, "vLLM's benchmark", "--save-detailed");
}

}  // namespace metronome
