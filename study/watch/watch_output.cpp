// SPDX-License-Identifier: Apache-2.0
// A look at a server for programs: JSON, and metrics of its own.
#include <cmath>
#include <fmt/core.h>

#include "core/base/json_text.h"
#include "core/base/metric_text.h"
#include "core/base/number_chars.h"
#include "study/watch/watch_report.h"

namespace metronome {
namespace {

void append_optional(const char* key, const std::optional<double>& number, JsonText& json) {
  json.key(key);
  if (!number) return json.null();
  json.value(*number);
}

void append_word(const char* key, const std::string& text, JsonText& json) {
  json.key(key);
  if (text.empty()) return json.null();
  json.value(text);
}

// Bounds that are infinite are null.
void append_band(const char* key, const std::optional<QuantileBand>& band, JsonText& json) {
  json.key(key);
  if (!band) return json.null();
  json.begin_object();
  json.field("estimate", band->estimate);
  json.field("least", band->least);
  json.field("most", band->most);
  json.end_object();
}

std::optional<QuantileBand> times(const std::optional<QuantileBand>& band, double factor) {
  if (!band) return std::nullopt;
  return QuantileBand{band->estimate * factor, band->least * factor, band->most * factor};
}

void append_histogram(const char* key, const BucketCounts& values, double factor, JsonText& json) {
  json.key(key);
  json.begin_object();
  json.field("count", values.count());
  append_optional("mean", values.empty() ? std::nullopt : std::optional(values.mean() * factor),
                  json);
  append_band("p50", times(quantile_band(values, 0.5), factor), json);
  append_band("p90", times(quantile_band(values, 0.9), factor), json);
  append_band("p99", times(quantile_band(values, 0.99), factor), json);
  append_band("max", times(quantile_band(values, 1), factor), json);
  json.end_object();
}

void append_load(const EngineFigures& engine, double seconds, JsonText& json) {
  const auto rate = [&](ServerFigure figure) {
    const auto count = engine.number(figure);
    return count && seconds > 0 ? std::optional(*count / seconds) : std::nullopt;
  };
  append_optional("running", engine.number(ServerFigure::Running), json);
  append_optional("waiting", engine.number(ServerFigure::Waiting), json);
  append_optional("kv_cache_usage", engine.number(ServerFigure::CacheUse), json);
  append_optional("preempted", engine.number(ServerFigure::Preempted), json);
  append_optional("requests_per_s", rate(ServerFigure::Ended), json);
  append_optional("prompt_tokens_per_s", rate(ServerFigure::PromptTokens), json);
  append_optional("output_tokens_per_s", rate(ServerFigure::OutputTokens), json);
  constexpr double kMs = 1e3;
  append_histogram("itl_ms", engine.histogram(ServerFigure::Itl), kMs, json);
  append_histogram("ttft_ms", engine.histogram(ServerFigure::Ttft), kMs, json);
  append_histogram("e2el_ms", engine.histogram(ServerFigure::E2el), kMs, json);
  append_histogram("queue_ms", engine.histogram(ServerFigure::QueueTime), kMs, json);
  append_histogram("prompt_tokens", engine.histogram(ServerFigure::PromptLength), 1, json);
  append_histogram("output_tokens", engine.histogram(ServerFigure::OutputLength), 1, json);
}

void append_window(const LoadWindow& window, JsonText& json) {
  json.begin_object();
  json.field("seconds", window.seconds);
  json.field("restarted", window.has_restarted);
  append_optional("prefix_hit_rate", window.hit_rate(), json);
  append_load(window.all, window.seconds, json);
  json.key("engines").begin_array();
  for (const auto& [rank, engine] : window.engines) {
    json.begin_object();
    json.field("rank", rank);
    append_load(engine, window.seconds, json);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void append_log(const LogFigures& log, JsonText& json) {
  json.begin_object();
  json.field("steps", log.num_steps);
  json.field("p50_itl_ms", log.itl.p50_ms);
  json.field("p99_itl_ms", log.itl.p99_ms);
  json.field("max_itl_ms", log.itl.max_ms);
  json.field("decode_rate_during_prefill", log.rate_during_prefill);
  json.field("decode_step_ms", log.decode_step_ms);
  json.field("prompt_token_ms", log.prompt_token_ms);
  json.end_object();
}

void append_watched_goals(const WatchReport& report, JsonText& json) {
  json.field("usual_goals", report.has_usual_goals);
  json.key("goals").begin_array();
  for (const WatchedGoal& one : report.goals) {
    json.begin_object();
    json.field("key", one.goal.key);
    json.field("words", goal_words(one.goal));
    json.key(std::string_view(one.goal.is_least ? "at_least" : "at_most")).value(one.goal.limit);
    json.field("state", goal_state_name(one.state));
    append_band("value", one.value, json);
    json.field("by_log", one.is_of_log);
    json.end_object();
  }
  json.end_array();
}

void append_advice(const RestartAdvice& advice, JsonText& json) {
  json.begin_object();
  append_word("change", advice.conclusion, json);
  append_word("flags", advice.flags, json);
  append_word("price", advice.price, json);
  append_word("command", advice.command, json);
  json.key("notes").begin_array();
  for (const std::string& note : advice.notes) json.value(note);
  json.end_array();
  json.end_object();
}

// ---- metrics ----

struct OwnMetric {
  std::string_view name, help;
};
constexpr OwnMetric kLook = {"metronome_advise_look_timestamp_seconds",
                             "Time of the last look at the server."};
constexpr OwnMetric kUp = {"metronome_advise_up", "Whether the server's metrics could be read."};
constexpr OwnMetric kBroken = {"metronome_advise_goal_broken", "Whether a goal is broken."};
constexpr OwnMetric kDecided = {"metronome_advise_goal_decided",
                                "Whether the metrics and the log can tell."};
constexpr OwnMetric kLimit = {"metronome_advise_goal_limit",
                              "The limit, in milliseconds or tokens per second."};
constexpr OwnMetric kValue = {"metronome_advise_goal_value", "The figure that it limits."};
constexpr OwnMetric kCause = {"metronome_advise_cause",
                              "Share of the looks, lines or gaps that show a cause."};
constexpr OwnMetric kFlags = {"metronome_advise_flags_info", "The advised flags, as a label."};
constexpr OwnMetric kAll[] = {kLook, kUp, kBroken, kDecided, kLimit, kValue, kCause, kFlags};

class MetricsWriter {
 public:
  explicit MetricsWriter(const std::string& server) : server_(metric_label_text(server)) {}

  void head(const OwnMetric& metric) {
    out_ += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", metric.name, metric.help);
  }
  void sample(const OwnMetric& metric, const std::string& labels, double value) {
    char digits[40];
    const auto end = write_number(digits, digits + sizeof digits, value).ptr;
    out_ += fmt::format("{}{{server=\"{}\"{}}} {}\n", metric.name, server_, labels,
                        std::string_view(digits, static_cast<std::size_t>(end - digits)));
  }
  std::string take() { return std::move(out_); }

 private:
  std::string server_;
  std::string out_;
};

}  // namespace

void append_report(const WatchReport& report, JsonText& json) {
  json.begin_object();
  json.field("server", report.server);
  json.field("time", report.clock);
  append_word("engine", report.engine, json);
  append_word("model", report.model, json);
  const auto count = [](const std::optional<std::int64_t>& one) {
    return one ? std::optional(static_cast<double>(*one)) : std::nullopt;
  };
  append_optional("block_size", count(report.block_size), json);
  append_optional("num_blocks", count(report.num_blocks), json);
  json.key("window");
  if (report.window) {
    append_window(*report.window, json);
  } else {
    json.null();
  }
  json.key("log");
  if (report.log) {
    append_log(*report.log, json);
  } else {
    json.null();
  }
  append_watched_goals(report, json);
  json.key("causes");
  append_causes(report.causes, json);
  json.key("advice");
  if (report.advice) {
    append_advice(*report.advice, json);
  } else {
    json.null();
  }
  json.key("diagnosis");
  if (report.finding_json.empty()) {
    json.null();
  } else {
    json.raw(report.finding_json);
  }
  json.key("notes").begin_array();
  for (const std::string& note : report.notes) json.value(note);
  json.end_array();
  json.end_object();
}

std::string report_metrics(const WatchReport& report, double unix_time) {
  MetricsWriter out(report.server);
  out.head(kLook);
  out.sample(kLook, "", unix_time);
  out.head(kUp);
  out.sample(kUp, "", report.window ? 1 : 0);
  const auto goals = [&](const OwnMetric& metric, const auto& value) {
    out.head(metric);
    for (const WatchedGoal& one : report.goals) {
      const std::optional<double> number = value(one);
      if (!number) continue;
      out.sample(metric, fmt::format(",goal=\"{}\"", metric_label_text(one.goal.key)), *number);
    }
  };
  using Number = std::optional<double>;
  goals(kBroken,
        [](const WatchedGoal& one) { return Number(one.state == GoalState::Broken ? 1 : 0); });
  goals(kDecided, [](const WatchedGoal& one) {
    return Number(one.state == GoalState::Broken || one.state == GoalState::Kept ? 1 : 0);
  });
  goals(kLimit, [](const WatchedGoal& one) { return Number(one.goal.limit); });
  goals(kValue,
        [](const WatchedGoal& one) { return one.value ? Number(one.value->estimate) : Number(); });
  out.head(kCause);
  for (const Cause& cause : report.causes) {
    out.sample(kCause, fmt::format(",cause=\"{}\"", cause.name), cause.share);
  }
  out.head(kFlags);
  if (report.advice && !report.advice->flags.empty()) {
    out.sample(kFlags, fmt::format(",flags=\"{}\"", metric_label_text(report.advice->flags)), 1);
  }
  return out.take();
}

std::vector<std::string_view> report_metric_names() {
  std::vector<std::string_view> names;
  for (const OwnMetric& one : kAll) names.push_back(one.name);
  return names;
}

}  // namespace metronome
