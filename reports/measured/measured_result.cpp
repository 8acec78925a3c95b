// SPDX-License-Identifier: Apache-2.0
#include "reports/measured/measured_result.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <string_view>
#include <vector>

#include "core/base/distribution.h"
#include "core/metrics/client_record.h"
#include "core/metrics/summary.h"
#include "reports/files/named_model.h"

namespace metronome {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

bool has_token_times(const MeasuredRun& run) {
  return run.has_gaps && run.has_starts() &&
         std::none_of(run.requests.begin(), run.requests.end(), [](const MeasuredRequest& r) {
           return r.start == kNoTime ||
                  (r.error.empty() && (r.ttft_ns == kNoTime || r.num_output_tokens < 1));
         });
}

WatchedRequest watched_request(const MeasuredRequest& measured) {
  WatchedRequest watched;
  RequestRecord& request = watched.request;
  request.arrival = request.ended = measured.start;
  request.num_prompt_tokens = std::max(measured.num_prompt_tokens, 0);
  request.max_output_tokens = std::max(measured.num_output_tokens, 0);
  watched.view.due = measured.start;
  if (!measured.error.empty()) {
    request.reason = EndReason::Errored;
    return watched;
  }
  request.reason = EndReason::Length;
  watched.view.num_tokens = measured.num_output_tokens;
  TimeNs time = measured.start + measured.ttft_ns;
  watched.token_times.push_back(time);
  for (const TimeNs gap : measured.gaps) watched.token_times.push_back(time += gap);
  request.ended = time;
  return watched;
}

struct MeasuredSamples {
  std::vector<double> ttft, tpot, itl, e2el;
};

MeasuredSamples samples_of(const MeasuredRun& run) {
  MeasuredSamples samples;
  for (const MeasuredRequest& request : run.requests) {
    if (!request.error.empty()) continue;
    const bool has_ttft = request.ttft_ns != kNoTime;
    const bool has_e2el = request.e2el_ns != kNoTime;
    if (has_ttft) samples.ttft.push_back(static_cast<double>(request.ttft_ns));
    if (has_e2el) samples.e2el.push_back(static_cast<double>(request.e2el_ns));
    if (has_ttft && has_e2el && request.num_output_tokens > 1) {
      samples.tpot.push_back(static_cast<double>(request.e2el_ns - request.ttft_ns) /
                             (request.num_output_tokens - 1));
    }
    for (const TimeNs gap : request.gaps) samples.itl.push_back(static_cast<double>(gap));
  }
  return samples;
}

// The figures that need no order of events.
Summary measured_summary(const MeasuredRun& run) {
  Summary summary;
  leave_out_steps(summary);
  summary.num_requests = run.num_completed + run.num_failed;
  summary.completed = run.num_completed;
  summary.failed = summary.errored = run.num_failed;
  summary.duration_ns = run.duration_ns;
  MeasuredSamples samples = samples_of(run);
  summary.ttft = describe(samples.ttft);
  summary.tpot = describe(samples.tpot);
  summary.itl = describe(samples.itl);
  summary.e2el = describe(samples.e2el);
  for (const MeasuredRequest& request : run.requests) {
    if (!request.error.empty()) continue;
    summary.total_input_tokens += std::max(request.num_prompt_tokens, 0);
    summary.total_output_tokens += std::max(request.num_output_tokens, 0);
  }
  const double seconds = to_seconds(run.duration_ns);
  const auto rate = [seconds](std::int64_t count) {
    return seconds > 0 ? static_cast<double>(count) / seconds : kUnknown;
  };
  summary.request_throughput = rate(summary.completed);
  summary.output_throughput = rate(summary.total_output_tokens);
  summary.total_token_throughput = rate(summary.total_input_tokens + summary.total_output_tokens);
  summary.max_output_tokens_per_s = kUnknown;
  return summary;
}

bool is_length_unknown(const MeasuredRun& run, std::int32_t MeasuredRequest::*length) {
  return std::any_of(run.requests.begin(), run.requests.end(), [&](const MeasuredRequest& r) {
    return r.error.empty() && r.*length == kUnknownTokens;
  });
}

void forget(std::initializer_list<std::string_view> keys, FigureValues& figures) {
  for (const std::string_view key : keys) figures.set(key, kUnknown);
}

void set_given_figures(const MeasuredRun& run, FigureValues& figures) {
  forget({"total_input_tokens", "total_output_tokens", "request_throughput", "output_throughput",
          "total_token_throughput"},
         figures);
  const auto all = all_figures();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (run.figures[i].kind != FigureValue::Kind::Absent) figures.set(i, run.figures[i]);
  }
  const double seconds = to_seconds(run.duration_ns);
  if (std::isnan(figures.number("request_throughput")) && seconds > 0) {
    figures.set("request_throughput", static_cast<double>(run.num_completed) / seconds);
  }
}

RunInfo measured_info(const MeasuredRun& run) {
  RunInfo info;
  info.label = run.client;
  if (run.num_in_file > 1) info.label += fmt::format(" run {}", run.number);
  info.backend = kHttpBackend;
  info.endpoint_type = "openai";
  const NamedModel model = served_model(run.model);
  info.model = model.config ? model.config->name : run.model.empty() ? "unknown" : run.model;
  info.hardware = "unknown";
  info.policy = "server";
  info.num_prompts = run.num_completed + run.num_failed;
  info.request_rate = run.request_rate;
  info.max_concurrency = run.max_concurrency;
  return info;
}

}  // namespace

std::optional<RunRecord> measured_record(const MeasuredRun& run) {
  if (!has_token_times(run)) return std::nullopt;
  std::vector<WatchedRequest> watched;
  for (const MeasuredRequest& request : run.requests) watched.push_back(watched_request(request));
  return make_client_record(watched);
}

ResultContent measured_content(const MeasuredRun& run) {
  RunResult result;
  result.info = measured_info(run);
  result.summary = measured_summary(run);
  if (const std::optional<RunRecord> record = measured_record(run)) {
    const Summary recorded = summarize(*record, {});
    result.summary.max_output_tokens_per_s = recorded.max_output_tokens_per_s;
    result.summary.max_concurrent_requests = recorded.max_concurrent_requests;
    result.summary.jitter = recorded.jitter;
    result.summary.longest_stall = recorded.longest_stall;
  }
  ResultContent content(result);
  FigureValues& figures = content.figures;
  if (!has_token_times(run)) forget({"max_concurrent_requests"}, figures);
  if (run.duration_ns == 0) forget({"duration"}, figures);
  if (run.requests.empty()) set_given_figures(run, figures);
  if (is_length_unknown(run, &MeasuredRequest::num_prompt_tokens)) {
    forget({"total_input_tokens", "total_token_throughput"}, figures);
  }
  if (is_length_unknown(run, &MeasuredRequest::num_output_tokens)) {
    forget({"total_output_tokens", "output_throughput", "total_token_throughput"}, figures);
  }
  return content;
}

}  // namespace metronome
