// SPDX-License-Identifier: Apache-2.0
// The layouts are those that two public readers of such traces accept: AIPerf
// (src/aiperf/dataset/loader/weka_trace_models.py) and inference-perf
// (inference_perf/datagen/otel_trace_to_replay_graph.py), and the JSON encoding of OTLP.
#include "core/workload/trace_agents.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/math.h"
#include "core/base/rng.h"

namespace metronome {

namespace {

// A call of a conversation.
struct Call {
  TimeNs start = 0;
  std::optional<TimeNs> end;         // nullopt: not recorded
  std::optional<TimeNs> think_time;  // from the end of the call before
  std::int64_t prompt = 0;
  std::int64_t output = 0;
  std::vector<std::uint64_t> hashes;
  std::int64_t block_size = 0;
};

// Calls by conversation, in the order in which conversations begin in the file.
class Conversations {
 public:
  void add(const std::string& name, Call call) {
    const auto [place, is_new] = places_.try_emplace(name, names_.size());
    if (is_new) {
      names_.push_back(name);
      calls_.emplace_back();
    }
    calls_[place->second].push_back(std::move(call));
  }

  // Appends a row for each call to `out`.
  void write(int line, TraceRecords& out) {
    for (std::size_t n = 0; n < names_.size(); ++n) write_one(names_[n], calls_[n], line, out);
  }

 private:
  // Calls that follow each other, until `end`.
  struct Chain {
    std::string name;
    TimeNs end = 0;
  };

  static void write_one(const std::string& name, std::vector<Call>& calls, int line,
                        TraceRecords& out) {
    std::stable_sort(calls.begin(), calls.end(),
                     [](const Call& a, const Call& b) { return a.start < b.start; });
    std::vector<Chain> chains;
    for (const Call& call : calls) {
      // The chain that ended last before this call.
      Chain* before = nullptr;
      for (Chain& chain : chains) {
        if (chain.end <= call.start && (before == nullptr || chain.end > before->end)) {
          before = &chain;
        }
      }
      Json row = Json::object();
      if (before == nullptr) {
        const std::string number = chains.empty() ? "" : fmt::format("#{}", chains.size());
        before = &chains.emplace_back(Chain{name + number});
        row["arrival_ns"] = call.start;
      } else {
        const bool is_first = before == &chains.front();
        row["delay_ns"] = is_first && call.think_time ? *call.think_time : call.start - before->end;
      }
      before->end = call.end.value_or(call.start);
      row["session"] = before->name;
      row["prompt_tokens"] = call.prompt;
      row["output_tokens"] = call.output;
      if (!call.hashes.empty()) {
        row["hash_ids"] = Json(call.hashes);
        row["block_size"] = call.block_size;
      }
      out.add(row.dump({.replaces_bad_utf8 = true}), line);
    }
  }

  std::map<std::string, std::size_t> places_;
  std::vector<std::string> names_;
  std::vector<std::vector<Call>> calls_;
};

Json document_of(const TraceLines& lines) {
  try {
    return Json::parse(lines.line(), {.max_depth = 64});
  } catch (const JsonError& error) {
    lines.fail("document", fmt::format("not JSON: {}; allowed: one object a trace", error.what()));
  }
}

// The number of a member, in [0, max].
double number_of(const TraceLines& lines, const Json& object, const char* key, double max) {
  const Json* const value = object.find(key);
  if (value == nullptr) lines.fail(key, "missing; allowed: a number");
  if (!value->is_number()) lines.fail(key, "not a number; allowed: a number");
  const double number = value->get<double>();
  if (!(number >= 0 && number <= max)) {
    lines.fail(key, fmt::format("is out of range; allowed: 0 to {}", std::llround(max)));
  }
  return number;
}

std::optional<TimeNs> seconds_of(const TraceLines& lines, const Json& object, const char* key) {
  const Json* const value = object.find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return std::llround(number_of(lines, object, key, static_cast<double>(kMaxTraceSeconds)) * 1e9);
}

std::string text_of(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Json* const value = object.find(key);
    if (value == nullptr || value->is_null()) continue;
    return value->is_string() ? value->string() : value->dump();
  }
  return {};
}

// ---- Weka ----

struct WekaTrace {
  std::string id;
  std::int64_t block_size = 0;
};

Call weka_call(const TraceLines& lines, const Json& request, const WekaTrace& trace,
               TimeNs offset) {
  constexpr auto kMost = static_cast<double>(kMaxLengthTokens);
  Call call;
  call.start = offset + seconds_of(lines, request, "t").value_or(0);
  if (const auto time = seconds_of(lines, request, "api_time")) call.end = call.start + *time;
  call.think_time = seconds_of(lines, request, "think_time");
  call.prompt = std::llround(number_of(lines, request, "in", kMost));
  call.output = std::max<std::int64_t>(1, std::llround(number_of(lines, request, "out", kMost)));
  call.block_size = trace.block_size;
  const Json* const hashes = request.find("hash_ids");
  if (hashes == nullptr || !hashes->is_array()) return call;
  // Ids are those of one trace. A prompt may have more of them than blocks, by its last one.
  const auto num_blocks = static_cast<std::size_t>(ceil_div(call.prompt, call.block_size));
  const std::uint64_t scope = Rng(0, trace.id)();
  for (const Json& id : *hashes) {
    if (call.hashes.size() == num_blocks) break;
    if (!id.is_number_integer()) lines.fail("hash_ids", "not whole numbers; allowed: integers");
    call.hashes.push_back(mix64(scope ^ static_cast<std::uint64_t>(id.get<std::int64_t>())) >> 8);
  }
  return call;
}

// Adds the requests of the trace, or of one of its agents, from `offset` on.
void add_weka_requests(const TraceLines& lines, const Json& list, const std::string& name,
                       const WekaTrace& trace, TimeNs offset, int depth, Conversations& all) {
  if (!list.is_array() || depth > 1) {
    lines.fail("requests", "not a list; allowed: objects in [ ], with subagents of one level");
  }
  for (const Json& request : list) {
    const Json* const nested = request.find("requests");
    if (nested == nullptr) {
      Call call = weka_call(lines, request, trace, offset);
      if (call.prompt > 0) all.add(name, std::move(call));
      continue;
    }
    // Some files count the times of a subagent from its start, others from that of the trace.
    const TimeNs start = seconds_of(lines, request, "t").value_or(0);
    const bool is_absolute = nested->is_array() && !nested->empty() &&
                             seconds_of(lines, nested->front(), "t").value_or(0) >= start;
    add_weka_requests(lines, *nested, name + "/" + text_of(request, {"agent_id"}), trace,
                      is_absolute ? 0 : start, depth + 1, all);
  }
}

// ---- OpenTelemetry ----

// The attributes of a span: a list of keys with typed values (Jaeger's tags: with values), or an
// object.
Json attributes_of(const Json& span) {
  Json all = Json::object();
  const Json* given = span.find("attributes");
  if (given == nullptr) given = span.find("tags");
  if (given == nullptr) return all;
  if (given->is_object()) return *given;
  if (!given->is_array()) return all;
  for (const Json& attribute : *given) {
    const Json* const key = attribute.is_object() ? attribute.find("key") : nullptr;
    const Json* const value = attribute.is_object() ? attribute.find("value") : nullptr;
    if (key == nullptr || !key->is_string() || value == nullptr) continue;
    if (!value->is_object()) {
      all[key->string()] = *value;
      continue;
    }
    for (const Json::Member& typed : value->items()) all[key->string()] = typed.value;
  }
  return all;
}

// A count that may be written as text, as OTLP writes its integers; 0: not said.
std::int64_t count_of(const TraceLines& lines, const Json& attributes,
                      std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const std::string text = text_of(attributes, {key});
    if (text.empty()) continue;
    return parse_trace_integer(lines, text, key, 0, kMaxLengthTokens);
  }
  return 0;
}

// Nanoseconds since 1970, or a date.
std::optional<TimeNs> span_time(const TraceLines& lines, const Json& span, const char* otlp,
                                const char* date) {
  const std::string ns = text_of(span, {otlp});
  if (!ns.empty()) {
    return parse_trace_integer(lines, ns, otlp, 0, kMaxTraceSeconds * kNsPerSecond);
  }
  const std::string text = text_of(span, {date});
  if (text.empty()) return std::nullopt;
  return parse_trace_date(lines, text, date);
}

// Jaeger's start, in microseconds, and how long the span took.
void read_jaeger_times(const TraceLines& lines, const Json& span, Call& call) {
  constexpr const char* kStart = "startTime";
  const auto micros = [&](const char* key) {
    return parse_trace_integer(lines, text_of(span, {key}), key, 0, kMaxTraceSeconds * 1'000'000) *
           (kNsPerMs / 1000);
  };
  call.start = micros(kStart);
  if (span.find("duration") != nullptr) call.end = call.start + micros("duration");
}

// Adds the spans that are calls of a model. Others have no usage. Names: OpenTelemetry's
// conventions for generative AI, OpenLLMetry's older ones, and OpenInference's.
void add_span(const TraceLines& lines, const Json& span, Conversations& all) {
  const Json attributes = attributes_of(span);
  Call call;
  call.prompt = count_of(lines, attributes,
                         {"gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens",
                          "llm.usage.prompt_tokens", "llm.token_count.prompt"});
  call.output = count_of(lines, attributes,
                         {"gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
                          "llm.usage.completion_tokens", "llm.token_count.completion"});
  const std::string operation = text_of(attributes, {"gen_ai.operation.name"});
  const bool is_agent = operation == "invoke_agent" || operation == "execute_tool";
  if (call.prompt == 0 || call.output == 0 || is_agent) return;
  const Json* const jaeger = span.find("startTime");
  if (jaeger != nullptr && jaeger->is_number()) {
    read_jaeger_times(lines, span, call);
  } else {
    const char* const date = jaeger != nullptr ? "startTime" : "start_time";
    const std::optional<TimeNs> start = span_time(lines, span, "startTimeUnixNano", date);
    if (!start) lines.fail("startTimeUnixNano", "missing; a span has it, or start_time");
    call.start = *start;
    call.end =
        span_time(lines, span, "endTimeUnixNano", jaeger != nullptr ? "endTime" : "end_time");
  }
  std::string name = text_of(attributes, {"gen_ai.conversation.id", "session.id"});
  if (name.empty()) name = text_of(span, {"traceId", "trace_id", "traceID"});
  if (const Json* context = span.find("context"); name.empty() && context != nullptr) {
    name = text_of(*context, {"trace_id"});  // as OpenTelemetry's console exporter writes spans
  }
  all.add(name, std::move(call));
}

void add_spans(const TraceLines& lines, const Json& node, int depth, Conversations& all) {
  if (!node.is_object()) return;
  // Tempo's answers have batches, Jaeger's data; a line may be one span.
  for (const char* key :
       {"resourceSpans", "scopeSpans", "instrumentationLibrarySpans", "batches", "data"}) {
    const Json* const list = node.find(key);
    if (list == nullptr || !list->is_array() || depth > 3) continue;
    for (const Json& inner : *list) add_spans(lines, inner, depth + 1, all);
  }
  const Json* const spans = node.find("spans");
  if (spans == nullptr && depth == 0 && node.find("attributes") != nullptr) {
    add_span(lines, node, all);
  }
  if (spans == nullptr || !spans->is_array()) return;
  for (const Json& span : *spans) add_span(lines, span, all);
}

bool has_key(std::string_view record, std::string_view key) {
  return record.find("\"" + std::string(key) + "\"") != std::string_view::npos;
}

}  // namespace

bool is_weka_trace(std::string_view record) {
  return has_key(record, "requests") && has_key(record, "block_size") && has_key(record, "in") &&
         has_key(record, "out");
}

bool is_opentelemetry_trace(std::string_view record) {
  const bool has_usage = record.find("gen_ai.") != std::string_view::npos ||
                         record.find("\"llm.") != std::string_view::npos;
  const bool is_one_span =
      has_key(record, "attributes") && (has_key(record, "trace_id") || has_key(record, "traceId"));
  return has_key(record, "resourceSpans") ||
         (has_usage && (has_key(record, "spans") || is_one_span));
}

TraceLines unfold_weka(TraceLines documents) {
  auto rows = std::make_shared<TraceRecords>();
  while (documents.next()) {
    const Json document = document_of(documents);
    constexpr auto kMost = static_cast<double>(kMaxLengthTokens);
    WekaTrace trace;
    trace.id = text_of(document, {"id"});
    trace.block_size = std::llround(number_of(documents, document, "block_size", kMost));
    if (trace.block_size < 1) documents.fail("block_size", "is 0; allowed: at least 1");
    const Json* const requests = document.find("requests");
    if (requests == nullptr) documents.fail("requests", "missing; allowed: a list of requests");
    Conversations all;
    add_weka_requests(documents, *requests, trace.id, trace, 0, 0, all);
    all.write(documents.number(), *rows);
  }
  return documents.with_records(std::move(rows));
}

TraceLines unfold_opentelemetry(TraceLines documents) {
  auto rows = std::make_shared<TraceRecords>();
  Conversations all;  // of all documents: an exporter writes one for each batch of spans
  while (documents.next()) add_spans(documents, document_of(documents), 0, all);
  all.write(1, *rows);
  return documents.with_records(std::move(rows));
}

}  // namespace metronome
