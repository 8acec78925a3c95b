// SPDX-License-Identifier: Apache-2.0
#include "core/workload/trace_payloads.h"

#include <fmt/core.h>
#include <utility>

#include "core/base/clip.h"
#include "core/base/json.h"
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
    Payload payload;
    for (const char* name : {"max_completion_tokens", "max_tokens", "max_output_tokens"}) {
      const Json* value = body.find(name);
      if (value == nullptr || value->is_null() || payload.output_tokens) continue;
      if (!value->is_number_integer() || value->get<double>() < 1 ||
          value->get<double>() > kMaxLengthTokens) {
        fail(fmt::format("{}: is {}; allowed: 1 to {}", name, value->dump(), kMaxLengthTokens));
      }
      payload.output_tokens = value->get<std::int64_t>();
    }
    for (const char* name : {"prompt", "input", "messages"}) {
      const Json* value = body.find(name);
      if (value != nullptr && !value->is_null()) add_texts(*value, name, payload.prompt);
    }
    if (payload.prompt.empty()) fail("has no text in prompt, input or messages; allowed: a text");
    return payload;
  }

 private:
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
         record.find("\"payloads\"") != std::string_view::npos;
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

}  // namespace metronome
