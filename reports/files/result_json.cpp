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
#include "reports/files/result_bands.h"
#include "reports/files/result_files.h"

namespace metronome {
namespace {

constexpr Formula kPercentiles = {
    "percentiles",
    "linear interpolation at rank p * (n - 1), over all values; std is that of the population"};

// For a fleet that kept no steps (TimeHistogram).
constexpr Formula kHistogramPercentiles = {
    "percentiles", "from histograms, within half a percent; std is that of the population"};

// For a run measured by a client.
constexpr std::array<Formula, 3> kClientFormulas = {{
    {"arrival",
     "when the client handed the request to its connection; requests.jsonl also has due_ns, its "
     "arrival time in the workload"},
    {"token",
     "an event of the stream with choices, at the time when its bytes had been read; "
     "output_tokens is the server's usage if it sends one, else the number of events"},
    {"steps", "a client sees no steps: figures that depend on steps are null"},
}};

void append_value(std::string_view key, const FigureValue& value, JsonText& json) {
  if (value.kind == FigureValue::Kind::Absent) return;
  json.key(key);
  switch (value.kind) {
    case FigureValue::Kind::Absent:
    case FigureValue::Kind::Null: json.null(); break;
    case FigureValue::Kind::Count: json.value(value.count); break;
    case FigureValue::Kind::Number: json.value(value.number); break;
    case FigureValue::Kind::Duration: json.ms(value.count); break;
    case FigureValue::Kind::List:
      json.begin_array();
      for (const double one : value.list) {
        if (value.has_counts) {
          json.value(static_cast<std::int64_t>(one));
        } else {
          json.value(one);
        }
      }
      json.end_array();
      break;
  }
}

// Appends the figures of vLLM's benchmark, or Metronome's own.
void append_figures(const FigureValues& values, bool is_benchmark, JsonText& json) {
  const auto figures = all_figures();
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (figures[i].is_benchmark != is_benchmark || !figures[i].is_written) continue;
    append_value(figures[i].key, values[i], json);
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

void append_benchmark_fields(const RunInfo& info, JsonText& json) {
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
}

void append_stall(const Stall& stall, JsonText& json) {
  json.key("longest_stall");
  if (stall.request == kNoRequest) return json.null();
  json.begin_object();
  json.key("gap_ms").ms(stall.gap_ns);
  json.field("request", index(stall.request));
  json.field("began_ns", stall.began_at);
  // The instants of a client's events are not in a file of their own, nor are steps not kept.
  const bool is_seen =
      stall.cause != StallCause::Unseen && stall.cause != StallCause::Unkept;
  append_optional(json, "step_before", is_seen ? std::optional(stall.step_before) : std::nullopt);
  append_optional(json, "step_after", is_seen ? std::optional(stall.step_after) : std::nullopt);
  json.field("cause", kStallCauses[static_cast<std::size_t>(stall.cause)]);
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

void append_limits(const SloConfig& slo, JsonText& json) {
  append_optional(json, "ttft_ms", slo.ttft_ms);
  append_optional(json, "tpot_ms", slo.tpot_ms);
  append_optional(json, "itl_ms", slo.itl_ms);
  append_optional(json, "e2el_ms", slo.e2el_ms);
}

void append_slo(const SloConfig& slo, JsonText& json) {
  json.key("slo");
  json.begin_object();
  append_limits(slo, json);
  for (const RunGoalKey& goal : run_goal_keys()) {
    if (slo.*goal.member) append_optional(json, goal.key, slo.*goal.member);
  }
  if (!slo.by_class.empty()) {
    json.key("classes");
    json.begin_array();
    for (const SloConfig& own : slo.by_class) {
      json.begin_object();
      json.field("name", own.class_name);
      append_limits(own, json);
      json.end_object();
    }
    json.end_array();
  }
  json.end_object();
}

void append_formulas(const ResultContent& content, JsonText& json) {
  json.key("formulas");
  json.begin_object();
  for (const Formula& formula : formulas_of(content)) json.field(formula.name, formula.text);
  json.end_object();
}

void append_or_left_out(std::string_view name, const Json& object, JsonText& json) {
  if (!object.is_null()) json.key(name).subtree(object);
}

// The parts of result.json before and after its formulas.
void append_run(const ResultContent& content, JsonText& json) {
  append_flat_fields(content, json);
  if (content.info.accuracy) append_accuracy(*content.info.accuracy, json);
  append_bands(content.bands, json);
  if (content.longest_stall) append_stall(*content.longest_stall, json);
  append_or_left_out("classes", content.classes, json);
  append_or_left_out("priorities", content.priorities, json);
  append_or_left_out("replicas", content.replicas, json);
  append_or_left_out("fleet_events", content.fleet_events, json);
  append_slo(content.info.slo, json);
  append_or_null(json, "scenario", content.info.scenario);
  append_or_null(json, "description", content.info.description);
}
void append_settings(const ResultContent& content, JsonText& json) {
  const RunInfo& info = content.info;
  append_or_left_out("server", info.server, json);
  append_or_left_out("client", info.client, json);
  json.key("config").subtree(info.config);
  append_or_left_out("config_reasons", info.config_reasons, json);
  if (!content.files) return;
  json.key("files");
  json.begin_object();
  for (const auto& [name, num_bytes] : *content.files) json.field(name, num_bytes);
  json.end_object();
}

}  // namespace

RunFacts RunInfo::facts() const {
  return {.num_gpus = static_cast<double>(num_gpus > 0 ? num_gpus : tensor_parallel_size),
          .price_per_gpu_hour = price_per_gpu_hour,
          .num_blocks = num_blocks,
          .num_prompts = num_prompts,
          .is_calibrated = is_calibrated};
}

namespace {

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json group_json(const GroupSummary& group) {
  Json one = Json::object();
  one["name"] = group.name;
  one["num_requests"] = group.num_requests;
  one["completed"] = group.completed;
  const auto add = [&](const std::string& name, const Distribution& figures) {
    one["mean_" + name + "_ms"] = number_or_null(figures.mean_ms);
    one["median_" + name + "_ms"] = number_or_null(figures.p50_ms);
    one["p99_" + name + "_ms"] = number_or_null(figures.p99_ms);
  };
  add("ttft", group.ttft);
  add("tpot", group.tpot);
  add("e2el", group.e2el);
  if (group.good) {
    one["good"] = *group.good;
    one["request_goodput"] = number_or_null(*group.request_goodput);
    one["slo_attainment"] = number_or_null(*group.slo_attainment);
  }
  return one;
}

}  // namespace

Json groups_json(const std::vector<GroupSummary>& groups) {
  Json list;
  for (const GroupSummary& group : groups) list.push_back(group_json(group));
  return list;
}

Json replicas_json(const std::vector<ReplicaSummary>& replicas) {
  Json list;
  for (const ReplicaSummary& replica : replicas) {
    Json one = group_json(replica.requests);
    one["median_itl_ms"] = number_or_null(replica.itl.p50_ms);
    one["p99_itl_ms"] = number_or_null(replica.itl.p99_ms);
    one["total_input_tokens"] = replica.total_input_tokens;
    one["total_output_tokens"] = replica.total_output_tokens;
    one["prefix_hit_rate"] = number_or_null(replica.prefix_hit_rate);
    one["busy_share"] = number_or_null(replica.busy_share);
    one["mean_kv_use"] = number_or_null(replica.mean_kv_use);
    one["peak_kv_use"] = number_or_null(replica.peak_kv_use);
    list.push_back(std::move(one));
  }
  return list;
}

Json fleet_events_json(const std::vector<FleetEvent>& events) {
  Json list;
  for (const FleetEvent& event : events) {
    Json one = Json::object();
    one["time_ns"] = event.time;
    one["replica"] = std::int64_t{event.replica};
    one["event"] = to_string(event.change);
    if (!event.cause.empty()) one["cause"] = event.cause;
    if (event.change == FleetChange::Failed) {
      one["retried"] = event.num_retried;
      one["lost"] = event.num_lost;
    }
    list.push_back(std::move(one));
  }
  return list;
}

ResultContent::ResultContent(const RunResult& result)
    : info(result.info),
      figures(result.summary, result.info.facts()),
      bands(result.bands),
      longest_stall(result.summary.longest_stall),
      classes(groups_json(result.summary.classes)),
      priorities(groups_json(result.summary.priorities)),
      replicas(replicas_json(result.summary.replicas)),
      fleet_events(fleet_events_json(result.summary.fleet_events)),
      files(result.files) {}

void append_flat_fields(const ResultContent& content, JsonText& json) {
  const RunInfo& info = content.info;
  append_benchmark_fields(info, json);
  append_figures(content.figures, true, json);
  json.field(kResultSchemaKey, kResultSchema);
  json.field("run_number", 0);
  json.field("policy", info.policy);
  json.field("hardware", info.hardware);
  append_or_null(json, "weights", info.weights);
  json.field("tensor_parallel_size", info.tensor_parallel_size);
  json.key("seed");
  info.seed ? json.value(*info.seed) : json.null();
  append_or_null(json, "digest", info.digest);
  append_or_null(json, "output_digest", info.output_digest);
  if (!info.keeps_steps) json.field("steps_kept", false);
  append_figures(content.figures, false, json);
}

std::vector<Formula> formulas_of(const ResultContent& content) {
  std::vector<Formula> formulas = {content.info.keeps_steps ? kPercentiles
                                                           : kHistogramPercentiles};
  const auto figures = all_figures();
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const FormulaText& formula = figures[i].formula;
    if (formula.text.empty() || content.figures[i].kind == FigureValue::Kind::Absent) continue;
    formulas.push_back({formula.name, formula.text});
  }
  if (content.info.backend == kHttpBackend) {
    formulas.insert(formulas.end(), kClientFormulas.begin(), kClientFormulas.end());
  }
  return formulas;
}

void append_result_fields(const ResultContent& content, JsonText& json) {
  append_run(content, json);
  append_settings(content, json);
}

std::string result_json(const RunResult& result) {
  const ResultContent content(result);
  JsonText json(JsonText::Style::Indented);
  json.begin_object();
  append_run(content, json);
  append_formulas(content, json);
  append_settings(content, json);
  json.field(kContentIdKey, content_id_text(json.view()));
  json.end_object();
  json.end_line();
  return std::string(json.view());
}

}  // namespace metronome
