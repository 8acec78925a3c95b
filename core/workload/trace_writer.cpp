// SPDX-License-Identifier: Apache-2.0
#include "core/workload/trace_writer.h"

#include <algorithm>
#include <bit>
#include <fmt/core.h>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/math.h"
#include "core/base/rng.h"
#include "core/workload/trace_mapping.h"

namespace metronome {

namespace {

[[noreturn]] void refuse(const TraceMapping& mapping, const std::string& what) {
  throw UnplacedConfigError("format", mapping.name + " cannot say " + what +
                                          "; allowed: a workload without, or format plain");
}

// "2000-01-01 00:00:SS.NNNNNNNNN": a date for a time of a run.
std::string date_text(TimeNs time) {
  const std::int64_t seconds = time / kNsPerSecond;
  const std::int64_t days = seconds / 86400;
  if (days >= 31) throw UnplacedConfigError("format", "arrivals after 31 days have no date here");
  return fmt::format("2000-01-{:02} {:02}:{:02}:{:02}.{:09}", 1 + days, seconds / 3600 % 24,
                     seconds / 60 % 60, seconds % 60, time % kNsPerSecond);
}

// The time as a decimal number of units, exactly.
std::string decimal_text(TimeNs time, TimeNs unit) {
  std::string text = std::to_string(time / unit);
  TimeNs rest = time % unit;
  if (rest == 0) return text;
  text += '.';
  while (rest != 0) {
    unit /= 10;
    text += static_cast<char>('0' + rest / unit);
    rest %= unit;
  }
  return text;
}

std::string time_text(const TraceMapping& mapping, TimeNs time) {
  switch (mapping.unit) {
    case TraceTimeUnit::Date: return date_text(time);
    case TraceTimeUnit::Milliseconds: return decimal_text(time, kNsPerMs);
    case TraceTimeUnit::Microseconds: return decimal_text(time, kNsPerMs / 1000);
    case TraceTimeUnit::Nanoseconds: return std::to_string(time);
    case TraceTimeUnit::Seconds:
    case TraceTimeUnit::Auto: break;
  }
  return decimal_text(time, kNsPerSecond);
}

// The ids of the blocks of a prompt; empty: its parts do not end where blocks do.
std::vector<std::uint64_t> block_ids(std::span<const PromptSegment> segments, std::int64_t block) {
  constexpr int kKindShift = 56;
  std::vector<std::uint64_t> ids;
  for (const PromptSegment& segment : segments) {
    const bool is_last = &segment == &segments.back();
    if (!is_last && segment.num_tokens % block != 0) return {};
    const bool is_block =
        segment.num_tokens <= block &&
        segment.content >> kKindShift == static_cast<std::uint64_t>(ContentKind::TraceBlock);
    const std::int64_t num_blocks = ceil_div(std::int64_t{segment.num_tokens}, block);
    for (std::int64_t k = 0; k < num_blocks; ++k) {
      ids.push_back(is_block ? segment.content & ((std::uint64_t{1} << kKindShift) - 1)
                             : mix64(segment.content + static_cast<std::uint64_t>(k)) >> 8);
    }
  }
  return ids;
}

// The largest blocks at whose ends all parts of prompts end, but the last; of prompts in one part,
// the smallest power of two that holds each.
std::int64_t common_block(const Workload& workload) {
  std::int64_t block = 0;
  std::uint64_t longest = 1;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const auto segments = workload.prompt_segments(RequestId{static_cast<std::uint32_t>(i)});
    for (std::size_t s = 0; s + 1 < segments.size(); ++s) {
      block = std::gcd(block, std::int64_t{segments[s].num_tokens});
    }
    for (const PromptSegment& segment : segments) {
      longest = std::max(longest, static_cast<std::uint64_t>(segment.num_tokens));
    }
  }
  return block > 0 ? block : static_cast<std::int64_t>(std::bit_ceil(longest));
}

// Writes one request after the other.
class TraceText {
 public:
  TraceText(const Workload& workload, const TraceMapping& mapping)
      : workload_(workload), mapping_(mapping) {
    for (const MappedField& field : mapping.fields) {
      if (field.is_needed || is_used(field.field)) fields_.push_back(&field);
    }
  }

  // Refuses what the format cannot say.
  void check() const {
    if (workload_.mode == ArrivalMode::Steps) refuse(mapping_, "arrivals by step");
    if (workload_.mode == ArrivalMode::ClosedLoop && needs(TraceField::Arrival)) {
      refuse(mapping_, "arrivals that wait for answers");
    }
    if (!workload_.images.empty()) refuse(mapping_, "images");
    for (const auto& [field, what] :
         {std::pair{TraceField::Priority, "priorities"}, std::pair{TraceField::Class, "classes"},
          std::pair{TraceField::Limit, "limits beside lengths"},
          std::pair{TraceField::IgnoresEos, "which answers end only at their length"}}) {
      if (is_used(field) && !says(field)) refuse(mapping_, what);
    }
    if (workload_.has_sessions() && (!says(TraceField::Session) || !says(TraceField::Delay))) {
      refuse(mapping_, "sessions");
    }
    if (!workload_.segments.empty() && !says(TraceField::Hashes)) check_unique();
    if (!workload_.token_begin.empty() && !says(TraceField::Tokens)) {
      throw UnplacedConfigError("format", mapping_.name +
                                              " cannot say token ids; allowed: a workload without, "
                                              "or format sharegpt");
    }
    if (workload_.token_begin.empty() && says(TraceField::Tokens)) {
      refuse(mapping_, "prompts without token ids");
    }
  }

  // Refuses prompts that share parts, which the format would lose.
  void check_unique() const {
    for (std::size_t i = 0; i < workload_.requests.size(); ++i) {
      if (!is_unique(i)) refuse(mapping_, "that prompts share parts");
    }
  }

  std::string text() {
    std::string text = mapping_.shape == TraceShape::Csv ? header() : std::string();
    for (std::size_t i = 0; i < workload_.requests.size(); ++i) text += row(i);
    return text;
  }

 private:
  bool says(TraceField field) const { return mapping_.find(field) != nullptr; }
  bool needs(TraceField field) const { return says(field) && mapping_.find(field)->is_needed; }

  bool is_unique(std::size_t i) const {
    const auto segments = workload_.prompt_segments(RequestId{static_cast<std::uint32_t>(i)});
    return segments.empty() ||
           (segments.size() == 1 && segments[0].content == content_id(ContentKind::Request, i));
  }

  std::string header() const {
    std::string text;
    for (const MappedField* field : fields_) text += (text.empty() ? "" : ",") + field->name;
    return text + '\n';
  }

  bool is_used(TraceField field) const {
    const auto any = [this](auto says) {
      return std::any_of(workload_.requests.begin(), workload_.requests.end(), says);
    };
    switch (field) {
      case TraceField::Priority: return any([](const RequestSpec& r) { return r.priority != 0; });
      case TraceField::Class: return any([](const RequestSpec& r) { return r.class_number != 0; });
      case TraceField::Limit: return any([](const RequestSpec& r) { return r.output_limit != 0; });
      case TraceField::IgnoresEos:
        return any([](const RequestSpec& r) { return r.ignores_eos.has_value(); });
      default: return true;
    }
  }

  std::string row(std::size_t i);
  std::optional<Json> value(TraceField field, std::size_t i);

  std::size_t session_of(std::size_t i) const {
    const std::vector<std::uint32_t>& begins = workload_.session_begin;
    const auto next = std::upper_bound(begins.begin(), begins.end(), static_cast<std::uint32_t>(i));
    return static_cast<std::size_t>(next - begins.begin()) - 1;
  }
  bool is_first(std::size_t i) const {
    return !workload_.has_sessions() || workload_.session_begin[session_of(i)] == i;
  }

  // The prompt tokens that the row counts: those of the whole prompt, or those that a turn adds.
  std::int64_t prompt_tokens(std::size_t i) const {
    const std::int64_t all = workload_.requests[i].num_prompt_tokens;
    if (is_first(i) || !mapping_.counts_new_tokens) return all;
    const RequestSpec& before = workload_.requests[i - 1];
    return all - before.num_prompt_tokens - before.max_output_tokens;
  }

  std::optional<Json> hashes(std::size_t i) const {
    if (is_unique(i)) return std::nullopt;
    const std::span<const PromptSegment> segments =
        workload_.prompt_segments(RequestId{static_cast<std::uint32_t>(i)});
    const std::vector<std::uint64_t> ids = block_ids(segments, mapping_.block_tokens);
    if (ids.empty()) {
      refuse(mapping_, fmt::format("prompts with parts that are not blocks of {} tokens",
                                   mapping_.block_tokens));
    }
    const bool continues = !is_first(i) && workload_.continues_session(i, session_of(i));
    if (!is_first(i) && continues != mapping_.counts_new_tokens) {
      refuse(mapping_, "which parts of a later turn's prompt are shared");
    }
    return Json(ids);
  }

  const Workload& workload_;
  const TraceMapping& mapping_;
  std::vector<const MappedField*> fields_;  // that the workload uses
};

std::optional<Json> TraceText::value(TraceField field, std::size_t i) {
  const RequestSpec& request = workload_.requests[i];
  const bool has_time = workload_.mode == ArrivalMode::Timed && workload_.has_arrivals;
  switch (field) {
    case TraceField::Arrival:
      if (!is_first(i) || (!has_time && !mapping_.find(field)->is_needed)) return std::nullopt;
      return Json(time_text(mapping_, has_time ? request.arrival : 0));
    case TraceField::Delay:
      if (is_first(i)) return std::nullopt;
      return Json(time_text(mapping_, workload_.delays[i]));
    case TraceField::Prompt: return Json(prompt_tokens(i));
    case TraceField::Output: return Json(request.max_output_tokens);
    case TraceField::Session:
      if (!workload_.has_sessions() && !mapping_.find(field)->is_needed) return std::nullopt;
      return Json(fmt::format("s{}", workload_.has_sessions() ? session_of(i) : i));
    case TraceField::Priority: return Json(request.priority);
    case TraceField::Class:
      return Json(request.class_number == 0 ? std::string()
                                            : workload_.class_names[request.class_number - 1u]);
    case TraceField::Limit:
      return request.output_limit == 0 ? std::nullopt : std::optional(Json(request.output_limit));
    case TraceField::Hashes: return hashes(i);
    case TraceField::BlockTokens:
      return is_unique(i) ? std::nullopt : std::optional(Json(mapping_.block_tokens));
    case TraceField::Tokens: {
      Json ids = Json::array();
      for (const TokenId id : workload_.prompt_ids(RequestId{static_cast<std::uint32_t>(i)})) {
        ids.push_back(metronome::value(id));
      }
      return ids;
    }
    case TraceField::IgnoresEos:
      return request.ignores_eos ? std::optional(Json(*request.ignores_eos)) : std::nullopt;
    case TraceField::Kind: return Json(mapping_.kind);
    case TraceField::Parent:
    case TraceField::Turn:
    case TraceField::Status:
    case TraceField::Salt:  // hash ids have it
    case TraceField::Images: return std::nullopt;
  }
  return std::nullopt;
}

// The member at a path such as "data.input_tokens".
Json& member_at(Json& object, std::string_view path) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return object[path];
  Json& inner = object[path.substr(0, dot)];
  if (!inner.is_object()) inner = Json::object();
  return member_at(inner, path.substr(dot + 1));
}

std::string TraceText::row(std::size_t i) {
  if (mapping_.shape == TraceShape::Csv) {
    std::string text;
    bool is_first_field = true;
    for (const MappedField* field : fields_) {
      const std::optional<Json> found = value(field->field, i);
      if (!std::exchange(is_first_field, false)) text += ',';
      if (found) text += found->is_string() ? found->string() : found->dump();
    }
    return text + '\n';
  }
  Json object = Json::object();
  for (const MappedField* field : fields_) {
    std::optional<Json> found = value(field->field, i);
    if (!found) continue;
    const bool is_time = field->field == TraceField::Arrival || field->field == TraceField::Delay;
    const bool is_number = is_time && mapping_.unit != TraceTimeUnit::Date;
    member_at(object, field->name) = is_number ? Json::parse(found->string()) : std::move(*found);
  }
  return object.dump({.replaces_bad_utf8 = true}) + '\n';
}

// A document for each session, whose requests come one after the other.
std::string weka_text(const Workload& workload) {
  std::string text;
  std::size_t session = 0;
  for (std::size_t i = 0; i < workload.requests.size();) {
    std::size_t end = i + 1;
    if (workload.has_sessions()) end = workload.session_begin[session + 1];
    const double start_s = to_seconds(workload.requests[i].arrival);
    Json list = Json::array();
    for (std::size_t k = i; k < end; ++k) {
      Json request = Json::object();
      request["t"] = start_s;
      request["type"] = "n";
      request["model"] = "";
      request["in"] = workload.requests[k].num_prompt_tokens;
      request["out"] = workload.requests[k].max_output_tokens;
      if (k > i) request["think_time"] = to_seconds(workload.delays[k]);
      list.push_back(std::move(request));
    }
    Json document = Json::object();
    document["id"] = fmt::format("s{}", session++);
    document["models"] = Json::array();
    document["block_size"] = 64;
    document["hash_id_scope"] = "local";
    document["requests"] = std::move(list);
    text += document.dump() + '\n';
    i = end;
  }
  return text;
}

Json attribute(const char* key, std::int64_t count) {
  Json value = Json::object();
  value["intValue"] = std::to_string(count);
  Json all = Json::object();
  all["key"] = key;
  all["value"] = std::move(value);
  return all;
}

// Spans without length, as far apart as the client waited.
std::string opentelemetry_text(const Workload& workload) {
  Json spans = Json::array();
  TimeNs time = 0;
  std::size_t session = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const bool is_first = !workload.has_sessions() || i == workload.session_begin[session];
    session += is_first ? 1 : 0;
    time = is_first ? workload.requests[i].arrival : time + workload.delays[i];
    Json span = Json::object();
    span["traceId"] = fmt::format("s{}", session);
    span["name"] = "chat";
    span["startTimeUnixNano"] = std::to_string(time);
    span["endTimeUnixNano"] = std::to_string(time);
    span["attributes"] = Json::array(
        {attribute("gen_ai.usage.input_tokens", workload.requests[i].num_prompt_tokens),
         attribute("gen_ai.usage.output_tokens", workload.requests[i].max_output_tokens)});
    spans.push_back(std::move(span));
  }
  Json scope = Json::object();
  scope["spans"] = std::move(spans);
  Json resource = Json::object();
  resource["scopeSpans"] = Json::array({std::move(scope)});
  Json document = Json::object();
  document["resourceSpans"] = Json::array({std::move(resource)});
  return document.dump() + '\n';
}

}  // namespace

std::string writable_formats() {
  std::string text;
  for (const std::string_view name : trace_format_names()) {
    if (!written_mapping(*trace_format_of(name))) continue;
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

std::string trace_text(const Workload& workload, TraceFormat format) {
  std::optional<TraceMapping> mapping = written_mapping(format);
  if (!mapping) {
    throw UnplacedConfigError("format",
                              "is none that can be written; allowed: " + writable_formats());
  }
  if (mapping->find(TraceField::BlockTokens) != nullptr) {
    mapping->block_tokens = static_cast<std::int32_t>(common_block(workload));
  }
  TraceText text(workload, *mapping);
  text.check();
  if (!mapping->is_document()) return text.text();
  text.check_unique();
  return format == TraceFormat::Weka ? weka_text(workload) : opentelemetry_text(workload);
}

}  // namespace metronome
