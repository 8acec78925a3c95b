// SPDX-License-Identifier: Apache-2.0
// llmperf's pair of files, in seconds: *_individual_responses.json and *_summary.json. Its
// inter_token_latency_s is the time of the whole request / tokens, so it has no figure here.
#include <array>
#include <map>
#include <optional>
#include <string>

#include "reports/measured/formats.h"
#include "reports/measured/reading.h"

namespace metronome {
namespace {

constexpr double kSecondsPerMinute = 60;

bool is_llmperf_response(const Json& value) {
  return value.contains("end_to_end_latency_s") && value.contains("number_output_tokens");
}

bool is_llmperf_summary(const Json& value) {
  return value.contains("results_ttft_s_mean") || value.contains("num_concurrent_requests");
}

MeasuredRequest read_llmperf_response(const JsonPlace& response) {
  MeasuredRequest request;
  if (const auto code = value_if(response, "error_code")) {
    const std::string why = text_if(response, "error_msg").value_or("");
    const std::string number = code->json().dump();
    add_failure(request, why.empty() ? "error " + number : number + ": " + why);
    return request;
  }
  request.num_prompt_tokens = token_count(response.at("number_input_tokens"));
  request.num_output_tokens = token_count(response.at("number_output_tokens"));
  request.ttft_ns = time_in_seconds(response.at("ttft_s"));
  request.e2el_ns = time_in_seconds(response.at("end_to_end_latency_s"));
  if (request.e2el_ns < request.ttft_ns) {
    response.at("end_to_end_latency_s").fail("is less than ttft_s");
  }
  return request;
}

void read_llmperf_settings(const JsonPlace& summary, MeasuredRun& run) {
  run.model = text_if(summary, "model").value_or("");
  run.max_concurrency = count_if(summary, "num_concurrent_requests");
  const auto completed = number_if(summary, "results_num_completed_requests");
  const auto per_minute = number_if(summary, "results_num_completed_requests_per_min");
  constexpr double kLongest = 1e8;
  if (!completed || !per_minute || *per_minute <= 0) return;
  const double seconds = *completed / *per_minute * kSecondsPerMinute;
  if (seconds > 0 && seconds < kLongest) run.duration_ns = static_cast<TimeNs>(seconds * 1e9);
}

// The statistics of a metric are members of their own: results_ttft_s_quantiles_p50.
void read_llmperf_figures(const JsonPlace& summary, MeasuredRun& run) {
  constexpr std::array<std::array<const char*, 2>, 2> kMetrics = {
      {{"ttft_s", "ttft"}, {"end_to_end_latency_s", "e2el"}}};
  for (const auto& [metric, name] : kMetrics) {
    Json statistics = Json::object();
    const std::string prefix = std::string("results_") + metric + "_";
    for (const Json::Member& member : summary.json().items()) {
      if (!member.key.starts_with(prefix)) continue;
      const std::string rest = member.key.substr(prefix.size());
      statistics[rest.substr(rest.rfind('_') + 1)] = member.value;
    }
    set_distribution(JsonPlace(metric, statistics), name, kMsPerSecond, run.figures);
  }
  run.num_completed = count_if(summary, "results_num_completed_requests").value_or(0);
  run.num_failed = count_if(summary, "results_number_errors").value_or(0);
  run.mean_prompt_tokens = number_if(summary, "results_number_input_tokens_mean");
  run.mean_output_tokens = number_if(summary, "results_number_output_tokens_mean");
  if (const auto rate = number_if(summary, "results_mean_output_throughput_token_per_s")) {
    run.figures.set("output_throughput", *rate);
  }
}

// The common beginning of the names of a pair.
std::string stem_of(const std::string& path, std::string_view end) {
  const std::size_t at = path.rfind(end);
  return path.substr(0, at);
}

MeasuredRun llmperf_run() {
  MeasuredRun run;
  run.client = "llmperf";
  return run;
}

}  // namespace

bool is_llmperf(const Json& value) {
  return is_llmperf_summary(value) ||
         (value.is_array() && !value.empty() && is_llmperf_response(value.front()));
}

std::vector<MeasuredRun> read_llmperf(const MeasuredFiles& files) {
  std::map<std::string, MeasuredRun> runs;
  for (const MeasuredFile& file : files) {
    const JsonPlace place = file.documents.front().place();
    if (!place.json().is_array()) continue;
    MeasuredRun run = llmperf_run();
    place.for_each([&](const JsonPlace& response) {
      run.requests.push_back(read_llmperf_response(response));
    });
    run.lacks.push_back("it has no start times: when requests arrived is unknown");
    run.lacks.push_back("it has no gaps between tokens: no ITL");
    runs.emplace(stem_of(file.path, "_individual_responses"), std::move(run));
  }
  for (const MeasuredFile& file : files) {
    const JsonPlace place = file.documents.front().place();
    if (place.json().is_array()) continue;
    const auto [run, is_new] = runs.try_emplace(stem_of(file.path, "_summary"), llmperf_run());
    read_llmperf_settings(place, run->second);
    if (!is_new) continue;
    read_llmperf_figures(place, run->second);
    run->second.lacks.push_back(
        "it has no requests, which the file of individual responses beside it has");
  }
  std::vector<MeasuredRun> ordered;
  for (auto& [stem, run] : runs) ordered.push_back(std::move(run));
  return ordered;
}

}  // namespace metronome
