// SPDX-License-Identifier: Apache-2.0
#include "core/workload/trace_payloads.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <utility>

#include "core/base/clip.h"
#include "core/base/json.h"
#include "core/workload/trace_names.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

namespace {

// One body, and where it is, for messages.
class PayloadReader {
 public:
  PayloadReader(const TraceLines& lines, std::string place)
      : lines_(lines), place_(std::move(place)) {}

  Payload read(const Json& body) {
    if (!body.is_object()) fail("is not an object; allowed: the body of a request");
    Payload payload = {{}, output_tokens(body)};
    for (const char* name : {"prompt", "input", "messages"}) {
      const Json* value = body.find(name);
      if (value != nullptr && !value->is_null()) add_texts(*value, name, payload.prompt);
    }
    if (payload.prompt.empty()) fail("has no text in prompt, input or messages; allowed: a text");
    return payload;
  }

  // A prompt, or a turn behind the texts of those before it.
  Payload read_turn(const Json& turn, const std::string& before, std::vector<std::string>& unused) {
    if (!turn.is_object()) fail("is not an object; allowed: {\"text\": TEXT}");
    Payload payload = {before, output_tokens(turn)};
    for (const Json::Member& member : turn.items()) {
      const bool is_text =
          member.key == "text" || member.key == "texts" || member.key == "text_input";
      if (is_text && !member.value.is_null()) add_texts(member.value, member.key, payload.prompt);
      const bool is_used = is_text || is_length(member.key) || member.key == "session_id";
      const bool is_known = std::find(unused.begin(), unused.end(), member.key) != unused.end();
      if (!is_used && !is_known && !member.value.is_null()) unused.push_back(member.key);
    }
    if (payload.prompt == before) fail("has no text; allowed: one in text, texts or text_input");
    return payload;
  }

 private:
  static constexpr const char* kLengths[] = {"max_completion_tokens", "max_tokens",
                                             "max_output_tokens", "output_length", "output_tokens"};

  static bool is_length(std::string_view name) {
    return std::find(std::begin(kLengths), std::end(kLengths), name) != std::end(kLengths);
  }

  // The first length that is there.
  std::optional<std::int64_t> output_tokens(const Json& object) const {
    for (const char* name : kLengths) {
      const Json* value = object.find(name);
      if (value == nullptr || value->is_null()) continue;
      if (!value->is_number_integer() || value->get<double>() < 1 ||
          value->get<double>() > kMaxLengthTokens) {
        fail(fmt::format("{}: is {}; allowed: 1 to {}", name, value->dump(), kMaxLengthTokens));
      }
      return value->get<std::int64_t>();
    }
    return std::nullopt;
  }

  // A text, or a list of texts, messages and parts.
  void add_texts(const Json& value, const std::string& name, std::string& prompt) {
    if (value.is_string()) {
      prompt += (prompt.empty() ? "" : "\n") + value.string();
    } else if (value.is_array()) {
      for (const Json& entry : value) add_texts(entry, name, prompt);
    } else if (const Json* content = value.is_object() ? value.find("content") : nullptr) {
      if (!content->is_null()) add_texts(*content, name, prompt);
    } else if (const Json* text = value.is_object() ? value.find("text") : nullptr) {
      add_texts(*text, name, prompt);
    } else if (const Json* contents = value.is_object() ? value.find("contents") : nullptr) {
      add_texts(*contents, name, prompt);
    } else {
      fail(fmt::format("{}: has {}; allowed: texts", name, clipped(value.dump())));
    }
  }

  [[noreturn]] void fail(const std::string& problem) const { lines_.fail(place_, problem); }

  const TraceLines& lines_;
  const std::string place_;
};

}  // namespace

bool is_payload_document(std::string_view record) {
  return record.starts_with('{') && record.find("\"data\"") != std::string_view::npos &&
         record.find("\"payload") != std::string_view::npos;
}

std::vector<Payload> read_payloads(std::string_view document, const TraceLines& lines) {
  Json json;
  try {
    json = Json::parse(document);
  } catch (const JsonError& error) {
    lines.fail("data", std::string("not JSON: ") + error.what() +
                           "; allowed: {\"data\": [{\"session_id\": NAME, \"payloads\": "
                           "[BODY, ...]}]}");
  }
  std::vector<Payload> payloads;
  const Json* data = json.is_object() ? json.find("data") : nullptr;
  if (data == nullptr || !data->is_array()) lines.fail("data", "is not a list; allowed: sessions");
  std::size_t number = 0;
  for (const Json& session : *data) {
    const Json* bodies = session.is_object() ? session.find("payloads") : nullptr;
    if (bodies == nullptr && session.is_object()) bodies = session.find("payload");
    const std::string place = fmt::format("data[{}].payloads", number++);
    if (bodies == nullptr || !bodies->is_array()) {
      lines.fail(place, "is not a list; allowed: bodies of requests");
    }
    std::size_t turn = 0;
    for (const Json& body : *bodies) {
      payloads.push_back(PayloadReader(lines, fmt::format("{}[{}]", place, turn++)).read(body));
    }
  }
  return payloads;
}

bool is_prompt_record(std::string_view record) {
  const TraceNames names(record, TraceShape::JsonLines);
  constexpr const char* kNames[] = {"text", "texts", "text_input", "turns"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&names](const char* name) { return names.has(name); });
}

std::vector<Payload> read_prompt_records(TraceLines records, std::vector<std::string>& unused) {
  std::vector<Payload> payloads;
  while (records.next()) {
    Json json;
    try {
      json = Json::parse(records.line());
    } catch (const JsonError& error) {
      records.fail("prompt", fmt::format("not JSON: {}; allowed: an object", error.what()));
    }
    const Json* const turns = json.is_object() ? json.find("turns") : nullptr;
    if (turns == nullptr) {
      payloads.push_back(PayloadReader(records, "prompt").read_turn(json, "", unused));
      continue;
    }
    if (!turns->is_array() || turns->empty()) {
      records.fail("turns", "is no list of turns; allowed: [{\"text\": TEXT}, ...]");
    }
    std::string before;
    std::size_t number = 0;
    for (const Json& turn : *turns) {
      PayloadReader reader(records, fmt::format("turns[{}]", number++));
      before = payloads.emplace_back(reader.read_turn(turn, before, unused)).prompt;
    }
  }
  return payloads;
}

}  // namespace metronome
