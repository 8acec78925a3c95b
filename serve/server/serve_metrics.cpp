// SPDX-License-Identifier: Apache-2.0
#include "serve/server/serve_metrics.h"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>

#include "core/base/metric_text.h"

namespace metronome {
namespace {

// Buckets of vllm/v1/metrics/buckets.py.
constexpr double kTtftBounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                  1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
constexpr double kItlBounds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                 .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
constexpr double kPhaseBounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                   30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
constexpr double kStepTokenBounds[] = {1,   8,    16,   32,   64,   128,  256,
                                       512, 1024, 2048, 4096, 8192, 16384};
constexpr double kChoicesBounds[] = {1, 2, 5, 10, 20};
// vLLM's series 1, 2, 5, 10, ... up to the model length.
constexpr double kLengthBounds[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                    1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};

void append_number(double value, std::string& out) {
  char text[40];
  out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

// Formatted as by the Python client: "0.5", "100000.0", never "1e+05".
void append_bound(double value, std::string& out) {
  char text[40];
  const std::size_t begin = out.size();
  out.append(text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr);
  if (out.find('.', begin) == std::string::npos) out += ".0";
}

void append_head(std::string_view name, std::string_view help, std::string_view type,
                 std::string& out) {
  out.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
  out.append(name).append(" ").append(type).append("\n");
}

void append_sample(std::string_view name, std::string_view labels, double value, std::string& out) {
  out.append(name).append("{").append(labels).append("} ");
  append_number(value, out);
  out += '\n';
}

void append_metric(std::string_view name, std::string_view help, std::string_view type,
                   std::string_view labels, double value, std::string& out) {
  append_head(name, help, type, out);
  append_sample(name, labels, value, out);
}

void append_ends(const std::array<std::int64_t, kNumEndReasons>& ended, const std::string& labels,
                 std::string& out) {
  constexpr std::string_view kName = "vllm:request_success_total";
  append_head(kName, "Requests by the reason of their end; refused ones have none.", "counter",
              out);
  constexpr std::pair<const char*, EndReason> kReasons[] = {{"stop", EndReason::Stop},
                                                            {"length", EndReason::Length},
                                                            {"abort", EndReason::Aborted},
                                                            {"error", EndReason::StepFailed}};
  for (const auto& [name, reason] : kReasons) {
    append_sample(kName, labels + ",finished_reason=\"" + name + "\"",
                  static_cast<double>(ended[static_cast<std::size_t>(reason)]), out);
  }
}

// The counters of vllm/v1/spec_decode/metrics.py. The n-th draft token is at position n - 1.
void append_drafts(const DraftCounts& drafts, std::int32_t max_drafts, const std::string& labels,
                   std::string& out) {
  const auto counter = [&](std::string_view name, std::string_view help, std::int64_t value) {
    append_metric(name, help, "counter", labels, static_cast<double>(value), out);
  };
  counter("vllm:spec_decode_num_drafts_total", "Decodes that verified drafts.", drafts.num_drafts);
  counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens verified.",
          drafts.num_drafted());
  counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens accepted.",
          drafts.num_accepted());
  constexpr std::string_view kName = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  append_head(kName, "Draft tokens accepted, by their position in the draft.", "counter", out);
  for (std::size_t i = 0; i < static_cast<std::size_t>(max_drafts); ++i) {
    const std::int64_t count = i < drafts.accepted.size() ? drafts.accepted[i] : 0;
    append_sample(kName, fmt::format("{},position=\"{}\"", labels, i), static_cast<double>(count),
                  out);
  }
}

}  // namespace

void Histogram::add(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<std::size_t>(bound - bounds_.begin())];
  sum_ += value;
  ++count_;
}

void Histogram::write(std::string_view name, std::string_view help, std::string_view labels,
                      std::string& out) const {
  append_head(name, help, "histogram", out);
  const std::string bucket = std::string(name) + "_bucket";
  std::int64_t count = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    std::string bound = "+Inf";
    if (i < bounds_.size()) {
      bound.clear();
      append_bound(bounds_[i], bound);
    }
    append_sample(bucket, std::string(labels) + ",le=\"" + bound + "\"", static_cast<double>(count),
                  out);
  }
  append_sample(std::string(name) + "_sum", labels, sum_, out);
  append_sample(std::string(name) + "_count", labels, static_cast<double>(count_), out);
}

ServeMetrics::ServeMetrics(std::int32_t num_drafts)
    : max_drafts(num_drafts),
      ttft(kTtftBounds),
      itl(kItlBounds),
      e2e(kPhaseBounds),
      queue(kPhaseBounds),
      prefill(kPhaseBounds),
      decode(kPhaseBounds),
      inference(kPhaseBounds),
      time_per_token(kItlBounds),
      prompt_tokens(kLengthBounds),
      generation_tokens(kLengthBounds),
      max_tokens(kLengthBounds),
      step_tokens(kStepTokenBounds),
      longest_generation(kLengthBounds),
      num_choices(kChoicesBounds) {}

void ServeMetrics::take(const LiveStats& stats) {
  num_running = stats.num_running;
  num_waiting = stats.num_waiting;
  kv_use = stats.kv_use;
  num_preemptions += stats.num_preemptions;
  num_prefix_queries += stats.num_prefix_queries;
  num_prefix_hits += stats.num_prefix_hits;
  for (const std::int32_t tokens : stats.step_tokens) step_tokens.add(tokens);
  drafts.add(stats.drafts);
}

std::string ServeMetrics::text(std::string_view model, std::int64_t num_blocks,
                               std::int32_t block_size) const {
  const std::string labels = "engine=\"0\",model_name=\"" + metric_label_text(model) + "\"";
  std::string out;
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    append_metric(name, help, "gauge", labels, value, out);
  };
  const auto counter = [&](std::string_view name, std::string_view help, std::int64_t value) {
    append_metric(name, help, "counter", labels, static_cast<double>(value), out);
  };
  gauge("vllm:num_requests_running", "Requests in the running batch.", num_running);
  gauge("vllm:num_requests_waiting", "Requests waiting to be admitted.", num_waiting);
  gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all of them.", kv_use);
  counter("vllm:num_preemptions_total", "Requests sent back to the queue.", num_preemptions);
  counter("vllm:prompt_tokens_total", "Prompt tokens of requests that got a token.",
          num_prompt_tokens);
  counter("vllm:generation_tokens_total", "Tokens generated.", num_generation_tokens);
  counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
          num_prefix_queries);
  counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
          num_prefix_hits);
  append_ends(ended, labels, out);
  if (max_drafts > 0) append_drafts(drafts, max_drafts, labels, out);
  const auto histogram = [&](std::string_view name, std::string_view help, const Histogram& h) {
    h.write(name, help, labels, out);
  };
  histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", ttft);
  histogram("vllm:inter_token_latency_seconds", "From one token to the next.", itl);
  histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", e2e);
  histogram("vllm:request_queue_time_seconds",
            "From when the engine takes a request, between two steps, to its admission.", queue);
  histogram("vllm:request_prefill_time_seconds", "From admission to the first token.", prefill);
  histogram("vllm:request_decode_time_seconds", "From the first token to the last.", decode);
  histogram("vllm:request_inference_time_seconds", "From admission to the last token.", inference);
  histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", prompt_tokens);
  histogram("vllm:request_generation_tokens", "Tokens a request got.", generation_tokens);
  histogram("vllm:request_time_per_output_token_seconds",
            "From the first token of a request to the last, per token after the first.",
            time_per_token);
  histogram("vllm:request_max_num_generation_tokens",
            "Tokens of the longest of a request's answers.", longest_generation);
  histogram("vllm:request_params_n", "Answers a request asked for.", num_choices);
  histogram("vllm:request_params_max_tokens", "Tokens a request asked for.", max_tokens);
  histogram("vllm:iteration_tokens_total", "Tokens of an engine step.", step_tokens);
  append_metric(
      "vllm:cache_config_info", "The KV cache.", "gauge",
      fmt::format("{},block_size=\"{}\",num_gpu_blocks=\"{}\"", labels, block_size, num_blocks), 1,
      out);
  gauge("metronome:connections", "Open connections.", static_cast<double>(num_connections));
  counter("metronome:refused_total", "Requests and connections refused with 429 or 503.",
          num_refused);
  counter("metronome:clients_cut_total", "Clients cut off because they read nothing for too long.",
          num_clients_cut);
  counter("metronome:answers_cut_total", "Answers ended because unsent tokens held too many bytes.",
          num_answers_cut);
  counter("metronome:clients_left_total", "Clients that left before their answer was complete.",
          num_clients_left);
  gauge("metronome:simulation_lag_seconds",
        "Largest delay of the simulator behind real time since the last scrape.", max_lag_s);
  return out;
}

}  // namespace metronome
