// SPDX-License-Identifier: Apache-2.0
#include "core/workload/trace_mapping.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/names.h"
#include "core/base/number_chars.h"
#include "core/workload/trace_names.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

namespace {

using enum TraceField;

// The rows that unfold_weka() and unfold_opentelemetry() make.
TraceMapping agent_trace(TraceFormat format, const char* name) {
  return {.format = format,
          .name = name,
          .fields = {{Arrival, "arrival_ns", false},
                     {Delay, "delay_ns", false},
                     {Prompt, "prompt_tokens"},
                     {Output, "output_tokens"},
                     {Session, "session"},
                     {Hashes, "hash_ids", false},
                     {BlockTokens, "block_size", false}},
          .unit = TraceTimeUnit::Nanoseconds,
          .has_loose_hashes = true};
}

// Names in logs of requests: of gateways and their JSON, of load generators' results, and the
// columns of the other formats, whose rows a tool may have written as JSON.
// `time` and `request_time` may be durations, so they come last.
constexpr const char* kLoggedArrivals =
    "timestamp|created_at|created|start_time|startTime|started_at|arrival_time|arrival|"
    "arrived_at|request_start_time|arrival_time_ms|timestamp_ms|start_time_ms|arrival_ms|"
    "arrival_s|TIMESTAMP|Timestamp|arrival_timestamp|request_created_at|createdAt|requested_at|"
    "request_timestamp|time_iso8601|@timestamp|ts|time|request_time";
constexpr const char* kLoggedPrompts =
    "usage.prompt_tokens|prompt_tokens|usage.input_tokens|input_tokens|gen_ai.usage.input_tokens|"
    "gen_ai_usage_input_tokens|info.input_tokens|response.usage.prompt_tokens|isl|input_length|"
    "input_len|prompt_len|prompt_length|input_sequence_length|number_input_tokens|"
    "num_input_tokens|num_prompt_tokens|input_token_count|prompt_token_count|promptTokens|"
    "inputTokens|ai.proxy.usage.prompt_tokens|usage.input|ContextTokens|Request tokens|"
    "num_prefill_tokens|prompt_size|tokens_prompt|input.inputTokenCount|inputTokenCount|"
    "usageMetadata.promptTokenCount|prompt_eval_count|PromptTokens|context_tokens";
constexpr const char* kLoggedOutputs =
    "usage.completion_tokens|completion_tokens|usage.output_tokens|output_tokens|"
    "gen_ai.usage.output_tokens|gen_ai_usage_output_tokens|info.output_tokens|"
    "response.usage.completion_tokens|osl|output_length|output_len|completion_len|"
    "generation_len|output_sequence_length|number_output_tokens|num_output_tokens|"
    "num_generated_tokens|output_token_count|completion_token_count|completionTokens|"
    "outputTokens|ai.proxy.usage.completion_tokens|usage.output|GeneratedTokens|"
    "Response tokens|num_decode_tokens|token_size|tokens_completion|output.outputTokenCount|"
    "outputTokenCount|usageMetadata.candidatesTokenCount|eval_count|CompletionTokens|"
    "generated_tokens|generation_tokens|gen_len";

TraceMapping logged_requests() {
  return {.format = TraceFormat::Gateway,
          .name = "gateway",
          .fields = {{Arrival, kLoggedArrivals, false},
                     {Prompt, kLoggedPrompts},
                     {Output, kLoggedOutputs},
                     {Status, "status|status_code|response_code", false},
                     {Session, "session_id|sessionId", false}},
          .unit = TraceTimeUnit::Auto,
          .skips_failed = true};
}

// Prompts as token ids, as trtllm-bench takes them.
TraceMapping requests_of_ids() {
  return {.format = TraceFormat::Gateway,
          .name = "gateway",
          .fields = {{Arrival, kLoggedArrivals, false},
                     {Prompt, kLoggedPrompts, false},
                     {Tokens, "input_ids|prompt_token_ids|prompt_ids"},
                     {Output, kLoggedOutputs}},
          .unit = TraceTimeUnit::Auto};
}

// Results of LMCache's multi-round benchmark: rounds of a user share their beginning.
TraceMapping rounds_of_users() {
  return {.format = TraceFormat::Gateway,
          .name = "gateway",
          .fields = {{Arrival, "launch_time"},
                     {Prompt, "prompt_tokens"},
                     {Output, "generation_tokens"},
                     {Session, "user_id"},
                     {Turn, "question_id", false}},
          .unit = TraceTimeUnit::Auto,
          .skips_failed = true};
}

// Formats of one shape with the same names come in the order in which they are preferred. `a|b` is
// whichever of the names the first line has.
std::vector<TraceMapping> csv_traces() {
  return {
      {.format = TraceFormat::Azure,
       .name = "azure",
       .fields = {{Arrival, "TIMESTAMP"}, {Prompt, "ContextTokens"}, {Output, "GeneratedTokens"}},
       .unit = TraceTimeUnit::Date},
      {.format = TraceFormat::Vidur,
       .name = "vidur",
       .fields = {{Arrival, "arrived_at"},
                  {Prompt, "num_prefill_tokens"},
                  {Output, "num_decode_tokens"}}},
      {.format = TraceFormat::Vidur,
       .name = "vidur",
       .fields = {{Arrival, "arrival_s"}, {Prompt, "prompt_tokens"}, {Output, "output_tokens"}}},
      {.format = TraceFormat::BurstGpt,
       .name = "burstgpt",
       .fields = {{Arrival, "Timestamp"}, {Prompt, "Request tokens"}, {Output, "Response tokens"}},
       .skips_failed = true},
      {.format = TraceFormat::Splitwise,
       .name = "splitwise",
       .fields = {{Arrival, "arrival_timestamp"}, {Prompt, "prompt_size"}, {Output, "token_size"}}},
      {.format = TraceFormat::ServeGen,
       .name = "servegen",
       .fields = {{Arrival, "timestamp"}, {Prompt, "input_tokens"}, {Output, "output_tokens"}},
       .unit = TraceTimeUnit::Auto},
      {.format = TraceFormat::GuideLlm,
       .name = "guidellm",
       .fields = {{Arrival, "timestamp"}, {Prompt, "prompt_tokens"}, {Output, "output_tokens"}},
       .unit = TraceTimeUnit::Auto},
      logged_requests(),
      rounds_of_users(),
  };
}

std::vector<TraceMapping> json_traces() {
  return {
      {.format = TraceFormat::AiPerf,
       .name = "aiperf",
       .fields = {{Session, "session_id"},
                  {Arrival, "timestamp", false},
                  {Delay, "delay|delay_ms", false},
                  {Prompt, "input_length"},
                  {Output, "output_length"},
                  {Hashes, "hash_ids", false}},
       .unit = TraceTimeUnit::Milliseconds,
       .counts_new_tokens = true},
      {.format = TraceFormat::Mooncake,
       .name = "mooncake",
       .fields = {{Arrival, "timestamp", false},
                  {Prompt, "input_length"},
                  {Output, "output_length"},
                  {Hashes, "hash_ids", false}},
       .unit = TraceTimeUnit::Milliseconds},
      {.format = TraceFormat::Bailian,
       .name = "bailian",
       .fields = {{Arrival, "timestamp"},
                  {Prompt, "input_length"},
                  {Output, "output_length"},
                  {Session, "chat_id"},
                  {Parent, "parent_chat_id", false},
                  {Turn, "turn", false},
                  {Class, "type", false},
                  {Hashes, "hash_ids", false}},
       .block_tokens = 16},
      {.format = TraceFormat::ShareGpt,
       .name = "sharegpt",
       .fields = {{Prompt, "input_toks"},
                  {Output, "output_toks"},
                  {Arrival, "arrival_time_ns"},
                  {Tokens, "input_tok_ids"},
                  {Images, "images", false},
                  {IgnoresEos, "ignore_eos", false}},
       .unit = TraceTimeUnit::Nanoseconds},
  };
}

// Of logs and other tools' requests.
std::vector<TraceMapping> log_traces() {
  return {
      {.format = TraceFormat::ServeGen,
       .name = "servegen",
       .fields = {{Arrival, "timestamp"},
                  {Prompt, "data.input_tokens"},
                  {Output, "data.output_tokens"}},
       .unit = TraceTimeUnit::Auto},
      {.format = TraceFormat::ServeGen,
       .name = "servegen",
       .fields = {{Arrival, "timestamp"}, {Prompt, "input_tokens"}, {Output, "output_tokens"}},
       .unit = TraceTimeUnit::Auto},
      {.format = TraceFormat::GuideLlm,
       .name = "guidellm",
       .fields = {{Arrival, "timestamp"}, {Prompt, "prompt_tokens"}, {Output, "output_tokens"}},
       .unit = TraceTimeUnit::Auto},
      {.format = TraceFormat::Dynamo,
       .name = "dynamo",
       .fields = {{Arrival, "request.request_received_ms|event_time_unix_ms"},
                  {Prompt, "request.input_tokens|request.replay.input_length"},
                  {Output, "request.output_tokens"},
                  {Hashes, "request.replay.input_sequence_hashes", false},
                  {BlockTokens, "request.replay.trace_block_size", false},
                  {Session, "agent_context.trajectory_id|agent_context.session_id", false},
                  {Kind, "event_type", false}},
       .unit = TraceTimeUnit::Milliseconds,
       .skips_failed = true,
       .has_loose_hashes = true,
       .kind = "request_end"},
      logged_requests(),
      requests_of_ids(),
      rounds_of_users(),
      agent_trace(TraceFormat::Weka, "weka"),
      agent_trace(TraceFormat::OpenTelemetry, "opentelemetry"),
      {.format = TraceFormat::Plain,
       .name = "plain",
       .fields = {{Arrival, "arrival_ns", false},
                  {Delay, "delay_ns", false},
                  {Prompt, "prompt_tokens"},
                  {Output, "output_tokens"},
                  {Session, "session", false},
                  {BlockTokens, "block_size", false}},
       .unit = TraceTimeUnit::Nanoseconds},
  };
}

const std::vector<TraceMapping>& known_traces() {
  static const std::vector<TraceMapping> all = [] {
    std::vector<TraceMapping> traces = csv_traces();
    for (std::vector<TraceMapping> more : {json_traces(), log_traces()}) {
      for (TraceMapping& trace : more) {
        trace.shape = TraceShape::JsonLines;
        traces.push_back(std::move(trace));
      }
    }
    return traces;
  }();
  return all;
}

// Each `a|b` becomes the name that the line has, or else the first.
TraceMapping with_names(TraceMapping mapping, const TraceNames& names) {
  for (MappedField& field : mapping.fields) {
    std::string_view rest = field.name;
    std::string chosen(rest.substr(0, rest.find('|')));
    while (!rest.empty()) {
      const std::string_view name = rest.substr(0, rest.find('|'));
      if (names.has(name)) {
        chosen = name;
        break;
      }
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    }
    field.name = chosen;
  }
  return mapping;
}

struct Score {
  bool has_shape = false;  // of the file
  std::ptrdiff_t num_needed = 0;
  std::ptrdiff_t num_found = 0;
  bool has_arrival = false;
  std::ptrdiff_t num_optional = 0;  // of those that a row may lack

  // Of formats with as many names, the one that knows the times and more of the rest.
  auto value() const {
    return std::tuple(has_shape, 2 * num_found - num_needed, has_arrival, num_optional);
  }
};

Score score_of(const TraceMapping& mapping, const TraceNames& names) {
  Score score;
  for (const MappedField& field : mapping.fields) {
    const bool is_found = names.has(field.name);
    score.has_arrival = score.has_arrival || (field.field == Arrival && is_found);
    (field.is_needed ? score.num_found : score.num_optional) += is_found ? 1 : 0;
    score.num_needed += field.is_needed ? 1 : 0;
  }
  return score;
}

// The known trace that the file is, before what the scenario says about its columns.
std::optional<TraceMapping> find_known(const TraceConfig& config, const TraceNames& names,
                                       bool is_json) {
  const bool is_auto = config.format == TraceFormat::Auto;
  std::optional<TraceMapping> best;
  Score best_score;
  for (const TraceMapping& known : known_traces()) {
    const bool has_shape = is_json == (known.shape == TraceShape::JsonLines);
    if (is_auto ? !has_shape : config.format != known.format) continue;
    TraceMapping named = with_names(known, names);
    Score score = score_of(named, names);
    score.has_shape = has_shape;
    // With columns of its own, a trace is not taken for one that merely shares a name.
    const bool may_be =
        config.columns.any() ? score.num_found == score.num_needed : score.num_found > 1;
    if (is_auto && !may_be) continue;
    if (best && score.value() <= best_score.value()) continue;
    best_score = score;
    best = std::move(named);
  }
  return best;
}

void map_field(TraceField field, const std::string& name, TraceMapping& mapping) {
  if (name.empty()) return;
  const bool is_needed = field == Prompt || field == Output;
  const MappedField given = {field, name, is_needed, true};
  for (MappedField& mapped : mapping.fields) {
    if (mapped.field != field) continue;
    mapped = given;
    return;
  }
  mapping.fields.push_back(given);
}

// Adds what the scenario says.
void add_given(const TraceConfig& config, TraceMapping& mapping) {
  const TraceColumns& columns = config.columns;
  map_field(Arrival, columns.arrival, mapping);
  map_field(Prompt, columns.prompt, mapping);
  map_field(Output, columns.output, mapping);
  map_field(Limit, columns.limit, mapping);
  map_field(Hashes, columns.hash_ids, mapping);
  map_field(Tokens, columns.tokens, mapping);
  map_field(Session, columns.session, mapping);
  map_field(Parent, columns.parent, mapping);
  map_field(Turn, columns.turn, mapping);
  map_field(Delay, columns.delay, mapping);
  map_field(Class, columns.class_name, mapping);
  map_field(Priority, columns.priority, mapping);
  if (config.time_unit != TraceTimeUnit::Auto) {
    mapping.unit = config.time_unit;
  }
  if (config.block_size) mapping.block_tokens = static_cast<std::int32_t>(*config.block_size);
  if (config.prompts != TracePrompts::Auto) {
    mapping.counts_new_tokens = config.prompts == TracePrompts::New;
  }
}

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto read = read_number(text.data(), end, number);
  return !text.empty() && read.ec == std::errc() && read.ptr == end ? std::optional(number)
                                                                    : std::nullopt;
}

// The text in the column of this name; empty: there is none.
std::string_view column_of(std::string_view header, std::string_view row, std::string_view name) {
  std::size_t wanted = SIZE_MAX;
  for_each_csv_field(header, [&](std::size_t position, std::string_view column) {
    if (column == name) wanted = position;
  });
  std::string_view found;
  for_each_csv_field(row, [&](std::size_t position, std::string_view text) {
    if (position == wanted) found = text;
  });
  return found;
}

// The unit of arrivals in a file whose format has another: an epoch says it by its size, and a name
// by its end.
void find_arrival_unit(const TraceNames& names, std::string_view header, std::string_view row,
                       TraceMapping& mapping) {
  const MappedField* const arrival = mapping.find(Arrival);
  if (arrival == nullptr) return;
  constexpr std::pair<std::string_view, TraceTimeUnit> kEnds[] = {
      {"_ms", TraceTimeUnit::Milliseconds}, {"_us", TraceTimeUnit::Microseconds},
      {"_ns", TraceTimeUnit::Nanoseconds},  {"_sec", TraceTimeUnit::Seconds},
      {"_s", TraceTimeUnit::Seconds},       {"_seconds", TraceTimeUnit::Seconds}};
  for (const auto& [end, unit] : kEnds) {
    if (mapping.unit == TraceTimeUnit::Auto && arrival->name.ends_with(end)) mapping.unit = unit;
  }
  // In milliseconds since its beginning a trace of 11 days is not that long; in seconds since 1970
  // it is of 2001 or later.
  constexpr double kFirstEpoch = 1e9, kFirstMillis = 1e11;
  std::optional<double> first = names.number(arrival->name);
  if (mapping.shape == TraceShape::Csv) {
    const std::string_view text = column_of(header, row, arrival->name);
    const bool is_date = text.find(':') != std::string_view::npos;
    first = number_of(without_quotes(text));
    const bool is_of_other_kind =
        mapping.unit == TraceTimeUnit::Date ? first.has_value() : is_date && !first;
    if (is_of_other_kind) mapping.arrival_unit = TraceTimeUnit::Auto;
  }
  if (!first) return;
  const bool is_in_seconds = *first >= kFirstEpoch && *first < kFirstMillis;
  const bool is_other = (mapping.unit == TraceTimeUnit::Milliseconds && is_in_seconds) ||
                        (mapping.unit == TraceTimeUnit::Seconds && *first >= kFirstMillis);
  if (is_other) mapping.arrival_unit = TraceTimeUnit::Auto;
}

// Fields that any trace may have.
const MappedField kCommon[] = {{Priority, "priority", false}, {Class, "class", false},
                               {Limit, "max_tokens", false},  {IgnoresEos, "ignore_eos", false},
                               {Salt, "cache_salt", false},   {Hashes, "hash_ids", false}};

void add_common(const TraceNames& names, TraceMapping& mapping) {
  for (const MappedField& common : kCommon) {
    const bool is_mapped =
        std::any_of(mapping.fields.begin(), mapping.fields.end(),
                    [&common](const MappedField& m) { return m.name == common.name; });
    if (is_mapped || mapping.find(common.field) != nullptr) continue;
    const bool may_come_later = mapping.shape == TraceShape::JsonLines;
    if (may_come_later || names.has(common.name)) {
      mapping.fields.push_back(common);
    }
  }
}

}  // namespace

bool TraceMapping::is_document() const {
  return format == TraceFormat::Weka || format == TraceFormat::OpenTelemetry;
}

const MappedField* TraceMapping::find(TraceField field) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [field](const MappedField& mapped) {
    return mapped.field == field;
  });
  return found != fields.end() ? &*found : nullptr;
}

std::string TraceMapping::article_and_name() const {
  const bool begins_with_vowel = std::string_view("aeiou").find(name.front()) != std::string::npos;
  return (begins_with_vowel ? "an " : "a ") + name;
}

std::string TraceMapping::needed_names() const {
  std::vector<std::string_view> needed;
  for (const MappedField& field : fields) {
    if (field.is_needed) needed.push_back(field.name);
  }
  return join_names(needed);
}

std::optional<TraceMapping> find_mapping(const TraceConfig& config, std::string_view first_line,
                                         bool is_json, std::string_view first_row) {
  const TraceNames names(first_line, is_json ? TraceShape::JsonLines : TraceShape::Csv);
  std::optional<TraceMapping> mapping = find_known(config, names, is_json);
  if (!mapping) {
    if (!config.columns.any()) return std::nullopt;
    mapping = TraceMapping{.format = TraceFormat::Auto,
                           .name = "mapped",
                           .shape = is_json ? TraceShape::JsonLines : TraceShape::Csv,
                           .unit = TraceTimeUnit::Auto,
                           .has_loose_hashes = true};
  }
  add_given(config, *mapping);
  add_common(names, *mapping);
  if (config.time_unit == TraceTimeUnit::Auto) {
    find_arrival_unit(names, first_line, first_row, *mapping);
  }
  return mapping;
}

std::optional<TraceMapping> written_mapping(TraceFormat format) {
  for (const TraceMapping& known : known_traces()) {
    if (known.format != format) continue;
    TraceMapping mapping = with_names(known, TraceNames({}, TraceShape::Csv));
    if (mapping.is_document()) return mapping;
    // The written trace has the times that a reader of the format may do without.
    const bool has_delays = mapping.find(Delay) != nullptr;
    for (MappedField& field : mapping.fields) {
      if (field.field == Arrival && !has_delays) field.is_needed = true;
    }
    for (const MappedField& common : kCommon) {
      const bool is_list_in_csv = common.field == Hashes && mapping.shape == TraceShape::Csv;
      if (mapping.find(common.field) == nullptr && !is_list_in_csv) {
        mapping.fields.push_back(common);
      }
    }
    return mapping;
  }
  return std::nullopt;
}

bool has_counts(const TraceConfig& config, std::string_view object) {
  if (config.columns.any()) return true;
  const TraceNames names(object, TraceShape::JsonLines);
  const auto fits = [&](const TraceMapping& known) {
    if (known.shape != TraceShape::JsonLines) return false;
    const Score score = score_of(with_names(known, names), names);
    return score.num_found == score.num_needed;
  };
  return std::any_of(known_traces().begin(), known_traces().end(), fits);
}

bool has_text(std::string_view object) {
  const TraceNames names(object, TraceShape::JsonLines);
  constexpr const char* kNames[] = {"conversations", "conversation", "messages",   "prompt",
                                    "text",          "texts",        "turns",      "text_input",
                                    "instruction",   "body.prompt",  "body.input", "body.messages"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&names](const char* name) { return names.has(name); });
}

std::string describe_formats(TraceShape shape) {
  std::string text;
  std::string_view before;
  for (const TraceMapping& known : known_traces()) {
    if (known.shape != shape) continue;
    if (known.name == before) {
      text.pop_back();
      text += " or " + known.needed_names() + ")";
      continue;
    }
    before = known.name;
    text += (text.empty() ? "" : ", ") + known.name;
    if (!known.is_document()) text += " (" + known.needed_names() + ")";
  }
  return text;
}

}  // namespace metronome
