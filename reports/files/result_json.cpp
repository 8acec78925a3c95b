// SPDX-License-Identifier: Apache-2.0
// Keys, order and formulas follow vllm/benchmarks/serve.py. Aggregates are milliseconds. Among
// Metronome's own top-level keys only durations end in _ms, because readers convert by that suffix.
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/json_text.h"
#include "reports/files/content_id.h"
#include "reports/files/result_files.h"

namespace metronome {
namespace {

using Formula = std::pair<std::string_view, std::string_view>;
constexpr std::array<Formula, 19> kFormulas = {{
    {"ttft", "first token - arrival, of completed requests"},
    {"tpot",
     "(last token - first token) / (output tokens - 1), of completed requests with more "
     "than one; AIPerf and guidellm call this inter-token latency"},
    {"itl",
     "inter-token latency: the time between two consecutive tokens of a request, pooled over "
     "completed requests; AIPerf calls this inter-chunk latency"},
    {"e2el", "last token - arrival, of completed requests"},
    {"queue",
     "first admission - arrival, of completed requests; behind a front end, first admission - "
     "hand-over"},
    {"itl_jitter",
     "longest - shortest ITL of a request, of completed requests with two tokens or more"},
    {"percentiles",
     "linear interpolation at rank p * (n - 1), over all values; std is that of "
     "the population"},
    {"duration", "seconds from the clock's start to the end of the last request"},
    {"failed",
     "requests that ended without completing: refused + never_fits + aborted + "
     "step_failed"},
    {"request_goodput",
     "completed requests within every limit of slo / duration; tpot counts as "
     "0 for a single token, itl limits the longest ITL of a request"},
    {"slo_attainment", "good requests / (completed + failed)"},
    {"max_output_tokens_per_s", "most tokens in one second, counted from the first arrival"},
    {"max_concurrent_requests", "most requests between arrival and last token, half-open"},
    {"output_tokens_per_s_per_user", "1000 / mean_tpot_ms; InferenceMAX calls it interactivity"},
    {"output_tokens_per_s_per_gpu", "output_throughput / tensor_parallel_size"},
    {"gpu_hours", "duration / 3600 * tensor_parallel_size"},
    {"cost_per_million_output_tokens",
     "price_per_gpu_hour * gpu_hours / total_output_tokens * 1e6; cost_per_million_tokens counts "
     "prompt tokens too"},
    {"kv_use", "used blocks / blocks after planning, weighted by time over duration"},
    {"busy_share", "sum of step durations / duration"},
}};

// For a run with drafts.
constexpr std::array<Formula, 5> kDraftFormulas = {{
    {"spec_decode_*",
     "as vLLM counts: a draft is what one decode verified; acceptance length is 1 + accepted / "
     "drafts, acceptance rate is percent of draft tokens"},
    {"itl_per_token",
     "every token has the gap before its step, divided by the tokens that came with it "
     "(sglang's bench_serving); itl has each gap once, as vLLM"},
    {"tokens_per_decode", "1 + draft tokens that requests received / decodes"},
    {"wasted_draft_tokens",
     "draft tokens that were computed and that no request received, padding among them"},
    {"*_beside_prompts",
     "of steps that left requests in the queue, or a prompt uncomputed: tokens of the budget that "
     "prompts did not get"},
}};

// For a run measured by a client.
constexpr std::array<Formula, 4> kClientFormulas = {{
    {"arrival",
     "when the client handed the request to its connection; requests.jsonl also has due_ns, its "
     "arrival time in the workload"},
    {"token",
     "an event of the stream with choices, at the time when its bytes had been read; "
     "output_tokens is the server's usage if it sends one, else the number of events"},
    {"errored", "of failed: the server answered with an error or stopped answering"},
    {"steps", "a client sees no steps: figures that depend on steps are null"},
}};

void append_distribution(JsonText& json, std::string_view name, const Distribution& values) {
  const std::array<std::pair<std::string_view, double>, 9> figures = {{
      {"mean_", values.mean_ms},
      {"median_", values.p50_ms},
      {"std_", values.std_ms},
      {"p50_", values.p50_ms},
      {"p90_", values.p90_ms},
      {"p95_", values.p95_ms},
      {"p99_", values.p99_ms},
      {"min_", values.min_ms},
      {"max_", values.max_ms},
  }};
  for (const auto& [prefix, figure] : figures) {
    json.field(std::string(prefix).append(name).append("_ms"), figure);
  }
}

template <class T>
void append_optional(JsonText& json, std::string_view name, const std::optional<T>& content) {
  json.key(name);
  if (content) {
    json.value(*content);
  } else {
    json.null();
  }
}

void append_or_null(JsonText& json, std::string_view name, const std::string& text) {
  json.key(name);
  if (text.empty()) {
    json.null();
  } else {
    json.value(text);
  }
}

// JSON has no infinity; vLLM writes the word "inf".
void append_or_inf(JsonText& json, std::string_view name, double number) {
  json.key(name);
  if (std::isinf(number)) {
    json.value("inf");
  } else {
    json.value(number);
  }
}

void append_benchmark_fields(const RunInfo& info, const Summary& summary, JsonText& json) {
  json.field("date", info.date);
  json.field("endpoint_type", info.endpoint_type);
  json.field("backend", info.backend);
  json.field("label", info.label);
  json.field("model_id", info.model);
  json.field("tokenizer_id", info.model);
  json.field("num_prompts", info.num_prompts);
  append_or_inf(json, "request_rate",
                info.request_rate.value_or(std::numeric_limits<double>::infinity()));
  append_or_inf(json, "burstiness", info.burstiness);
  append_optional(json, "max_concurrency", info.max_concurrency);
  json.field("duration", to_seconds(summary.duration_ns));
  json.field("completed", summary.completed);
  json.field("failed", summary.failed);
  json.field("total_input_tokens", summary.total_input_tokens);
  json.field("total_output_tokens", summary.total_output_tokens);
  json.field("request_throughput", summary.request_throughput);
  append_optional(json, "request_goodput", summary.request_goodput);
  json.field("output_throughput", summary.output_throughput);
  json.field("total_token_throughput", summary.total_token_throughput);
  json.field("max_output_tokens_per_s", summary.max_output_tokens_per_s);
  json.field("max_concurrent_requests", summary.max_concurrent_requests);
  json.field("rtfx", 0.0);  // vLLM's audio figure: 0 for text
  append_distribution(json, "ttft", summary.ttft);
  append_distribution(json, "tpot", summary.tpot);
  append_distribution(json, "itl", summary.itl);
  append_distribution(json, "e2el", summary.e2el);
}

std::string_view to_string(StallCause cause) {
  switch (cause) {
    case StallCause::Unknown: return "unknown";
    case StallCause::Prefill: return "prefill";
    case StallCause::Encoding: return "encoding";
    case StallCause::Preemption: return "preemption";
    case StallCause::Unseen: return "unseen";
  }
  return "?";
}

void append_stall(const Stall& stall, JsonText& json) {
  json.key("longest_stall");
  if (stall.request == kNoRequest) return json.null();
  json.begin_object();
  json.key("gap_ms").ms(stall.gap_ns);
  json.field("request", index(stall.request));
  json.field("began_ns", stall.began_at);
  // The instants of a client's events are not in a file of their own.
  const bool is_seen = stall.cause != StallCause::Unseen;
  append_optional(json, "step_before", is_seen ? std::optional(stall.step_before) : std::nullopt);
  append_optional(json, "step_after", is_seen ? std::optional(stall.step_after) : std::nullopt);
  json.field("cause", to_string(stall.cause));
  json.key("largest_prefill");
  if (stall.prefill_request == kNoRequest) {
    json.null();
  } else {
    json.begin_object();
    json.field("request", index(stall.prefill_request));
    json.field("first_position", stall.prefill_position);
    json.field("num_tokens", stall.prefill_tokens);
    json.field("step", stall.prefill_step);
    json.end_object();
  }
  append_optional(json, "prefill_tokens",
                  is_seen ? std::optional(stall.num_prefill_tokens) : std::nullopt);
  if (stall.encode_ns > 0) json.key("encode_ms").ms(stall.encode_ns);
  json.end_object();
}

void append_noise(const NoiseBands& noise, JsonText& json) {
  if (noise.num_seeds == 0) return;
  json.key("noise");
  json.begin_object();
  json.field("seeds", noise.num_seeds);
  json.key("bands");
  json.begin_object();
  for (const FigureBand& band : noise.figures) {
    json.key(band.key);
    json.begin_array();
    json.value(band.low);
    json.value(band.high);
    json.end_array();
  }
  json.end_object();
  json.end_object();
}

// The keys of `vllm bench serve` for a server with drafts, then Metronome's own.
void append_drafts(const DraftSummary& drafts, JsonText& json) {
  const DraftCounts& counts = drafts.counts;
  json.field("spec_decode_acceptance_rate", 100 * drafts.acceptance_rate);
  json.field("spec_decode_acceptance_length", drafts.acceptance_length);
  json.field("spec_decode_num_drafts", counts.num_drafts);
  json.field("spec_decode_draft_tokens", counts.num_drafted());
  json.field("spec_decode_accepted_tokens", counts.num_accepted());
  json.key("spec_decode_per_position_acceptance_rates");
  json.begin_array();
  for (const std::int64_t count : counts.accepted) {
    json.value(static_cast<double>(count) / static_cast<double>(counts.num_drafts));
  }
  json.end_array();
  const auto append_counts = [&json](std::string_view name, const std::vector<std::int64_t>& list) {
    json.key(name);
    json.begin_array();
    for (const std::int64_t count : list) json.value(count);
    json.end_array();
  };
  append_counts("spec_decode_drafted_per_position", counts.drafted);
  append_counts("spec_decode_accepted_per_position", counts.accepted);
  json.field("wasted_draft_tokens", drafts.num_wasted);
  json.field("draft_tokens_beside_prompts", drafts.beside_prompts.num_drafted);
  json.field("wasted_draft_tokens_beside_prompts", drafts.beside_prompts.num_wasted);
  json.field("tokens_per_decode", drafts.tokens_per_decode);
  append_distribution(json, "itl_per_token", drafts.itl_per_token);
}

void append_slo(const SloConfig& slo, JsonText& json) {
  json.key("slo");
  json.begin_object();
  append_optional(json, "ttft_ms", slo.ttft_ms);
  append_optional(json, "tpot_ms", slo.tpot_ms);
  append_optional(json, "itl_ms", slo.itl_ms);
  append_optional(json, "e2el_ms", slo.e2el_ms);
  json.end_object();
}

}  // namespace

double cost_per_million(const RunResult& result, double tokens_per_s) {
  const double price = result.info.price_per_gpu_hour.value_or(std::nan(""));
  return price / 3600 * result.info.tensor_parallel_size / tokens_per_s * 1e6;
}

void append_flat_fields(const RunResult& result, JsonText& json) {
  const RunInfo& info = result.info;
  const Summary& summary = result.summary;
  append_benchmark_fields(info, summary, json);
  json.field(kResultSchemaKey, kResultSchema);
  json.field("run_number", 0);
  json.field("policy", info.policy);
  json.field("hardware", info.hardware);
  append_or_null(json, "weights", info.weights);
  json.field("tensor_parallel_size", info.tensor_parallel_size);
  json.field("seed", info.seed);
  append_or_null(json, "digest", info.digest);
  append_or_null(json, "output_digest", info.output_digest);
  json.field("refused", summary.refused);
  json.field("never_fits", summary.never_fits);
  json.field("aborted", summary.aborted);
  json.field("step_failed", summary.step_failed);
  if (!summary.has_steps) json.field("errored", summary.errored);
  json.field("unfinished", summary.unfinished);
  const std::int64_t num_unsent = info.num_prompts - summary.num_requests;
  if (num_unsent > 0) json.field("unsent", num_unsent);
  append_optional(json, "slo_attainment", summary.slo_attainment);
  const double num_gpus = info.tensor_parallel_size;
  json.field("output_tokens_per_s_per_user", 1e3 / summary.tpot.mean_ms);
  json.field("output_tokens_per_s_per_gpu", summary.output_throughput / num_gpus);
  json.field("gpu_hours", to_seconds(summary.duration_ns) / 3600 * num_gpus);
  append_optional(json, "price_per_gpu_hour", info.price_per_gpu_hour);
  json.field("cost_per_million_output_tokens", cost_per_million(result, summary.output_throughput));
  json.field("cost_per_million_tokens", cost_per_million(result, summary.total_token_throughput));
  append_distribution(json, "queue", summary.queue);
  if (summary.front_end.count > 0) append_distribution(json, "front_end", summary.front_end);
  append_distribution(json, "itl_jitter", summary.jitter);
  json.key("longest_stall_ms");
  if (summary.longest_stall.request == kNoRequest) {
    json.null();
  } else {
    json.ms(summary.longest_stall.gap_ns);
  }
  const auto of_steps = [&](std::string_view name, std::int64_t count) {
    append_optional(json, name, summary.has_steps ? std::optional(count) : std::nullopt);
  };
  of_steps("num_kv_blocks", info.num_blocks);
  json.field("mean_kv_use", summary.mean_kv_use);
  json.field("peak_kv_use", summary.peak_kv_use);
  of_steps("num_preemptions", summary.num_preemptions);
  json.field("prefix_hit_rate", summary.prefix_hit_rate);
  json.field("mean_running", summary.mean_running);
  of_steps("peak_running", summary.peak_running);
  json.field("mean_waiting", summary.mean_waiting);
  of_steps("peak_waiting", summary.peak_waiting);
  of_steps("num_steps", summary.num_steps);
  of_steps("num_failed_steps", summary.num_failed_steps);
  json.field("mean_batch_tokens", summary.mean_batch_tokens);
  json.field("busy_share", summary.busy_share);
  if (summary.drafts) append_drafts(*summary.drafts, json);
  if (info.is_calibrated) {
    json.field("steps_outside_calibration", summary.num_extrapolated_steps);
  }
}

std::string result_json(const RunResult& result) {
  JsonText json(JsonText::Style::Indented);
  json.begin_object();
  append_flat_fields(result, json);
  append_noise(result.noise, json);
  append_stall(result.summary.longest_stall, json);
  append_slo(result.info.slo, json);
  append_or_null(json, "scenario", result.info.scenario);
  append_or_null(json, "description", result.info.description);
  json.key("formulas");
  json.begin_object();
  for (const auto& [name, formula] : kFormulas) json.field(name, formula);
  if (result.summary.drafts) {
    for (const auto& [name, formula] : kDraftFormulas) json.field(name, formula);
  }
  if (!result.summary.has_steps) {
    for (const auto& [name, formula] : kClientFormulas) json.field(name, formula);
  }
  json.end_object();
  const auto append_object = [&json](std::string_view name, const std::string& object) {
    if (object.empty()) return;
    json.key(name);
    json.raw(object);
  };
  append_object("server", result.info.server_json);
  append_object("client", result.info.client_json);
  json.key("config");
  if (result.info.config_json.empty()) {
    json.null();
  } else {
    json.raw(result.info.config_json);
  }
  append_object("config_reasons", result.info.config_reasons_json);
  if (result.files) {
    json.key("files");
    json.begin_object();
    for (const auto& [name, num_bytes] : *result.files) json.field(name, num_bytes);
    json.end_object();
  }
  json.field(kContentIdKey, content_id_text(json.view()));
  json.end_object();
  json.end_line();
  return std::string(json.view());
}

}  // namespace metronome
