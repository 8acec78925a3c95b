// SPDX-License-Identifier: Apache-2.0
// Answers of OpenAI's /v1/responses. A stream opens an item for reasoning, and one for the text or
// the call, and ends with the whole response.
#include <utility>

#include "core/base/json.h"
#include "serve/server/answer_form.h"

namespace metronome {
namespace {

class ResponsesForm final : public AnswerForm {
 public:
  using AnswerForm::AnswerForm;

  void write_token(std::int32_t choice, const AnswerToken& token, const AnswerEnd* end,
                   const AnswerUsage& usage, std::string& out) override;
  void write_end(const AnswerUsage& usage, std::string& out) override;
  void write_error(int status, std::string_view message, std::string& out) override;
  std::optional<std::string> body(std::span<const AnswerChoice> choices, const AnswerUsage& usage,
                                  std::size_t most_bytes) override;
  std::size_t num_held_bytes() const override { return num_held_bytes_; }

 private:
  enum class Part : std::uint8_t { None, Reasoning, Text, Call };

  static const char* status_of(const AnswerEnd& end) {
    return end.reason == "stop" ? "completed" : "incomplete";
  }
  std::string item_id(Part part) const;
  Json item(Part part, const std::string& text, const char* status) const;
  Json content_part(Part part, const std::string& text) const;
  Json response(const char* status) const;
  Json logprobs(const AnswerToken& token) const;
  Part last_part() const { return request_.function.empty() ? Part::Text : Part::Call; }

  void write(const char* type, Json event, std::string& out);
  Json place() const;  // of the open part
  void open(Part part, std::string& out);
  void close(const AnswerEnd* end, std::string& out);
  void finish(const AnswerEnd& end, const AnswerUsage& usage, Json& made) const;

  std::int64_t num_events_ = 0;
  bool has_begun_ = false;
  Part part_ = Part::None;  // that is open
  std::string text_;        // of it
  Json logprobs_ = Json::array();
  Json items_ = Json::array();  // that are complete
  std::size_t num_held_bytes_ = 0;
  AnswerEnd end_;
};

// ---- objects ----

std::string ResponsesForm::item_id(Part part) const {
  return (part == Part::Reasoning ? "rs_" : part == Part::Text ? "msg_" : "fc_") + facts_.id;
}

Json ResponsesForm::content_part(Part part, const std::string& text) const {
  if (part == Part::Reasoning) return Json{{"type", "reasoning_text"}, {"text", text}};
  return Json{{"type", "output_text"},
              {"text", text},
              {"annotations", Json::array()},
              {"logprobs", logprobs_}};
}

// `status` is "in_progress" for an item that begins.
Json ResponsesForm::item(Part part, const std::string& text, const char* status) const {
  Json made = Json{{"id", item_id(part)}};
  if (part == Part::Call) {
    made["type"] = "function_call";
    made["call_id"] = "call_" + facts_.id;
    made["name"] = request_.function;
    made["arguments"] = text;
  } else {
    Json content = Json::array();
    const bool begins = std::string_view(status) == "in_progress";
    if (!begins) content.push_back(content_part(part, text));
    made["type"] = part == Part::Text ? "message" : "reasoning";
    if (part == Part::Text) made["role"] = "assistant";
    if (part == Part::Reasoning) made["summary"] = Json::array();
    made["content"] = content;
  }
  made["status"] = status;
  return made;
}

Json ResponsesForm::response(const char* status) const {
  Json made =
      Json{{"id", "resp_" + facts_.id}, {"object", "response"}, {"created_at", facts_.created},
           {"status", status},          {"error", nullptr},     {"incomplete_details", nullptr},
           {"model", model_.name},      {"output", items_}};
  made.update(*request_.repeated);
  made["usage"] = nullptr;
  return made;
}

Json ResponsesForm::logprobs(const AnswerToken& token) const {
  Json list = Json::array();
  if (request_.sampling.num_logprobs < 0 || token.logprobs.empty()) return list;
  Json top = Json::array();
  for (const TokenLogprob& entry : token.logprobs.subspan(1)) {
    top.push_back(Json{{"token", token_text(entry.token)}, {"logprob", entry.logprob}});
  }
  list.push_back(Json{{"token", token_text(token.id)},
                      {"logprob", token.logprobs[0].logprob},
                      {"bytes", Json::array()},
                      {"top_logprobs", top}});
  return list;
}

void ResponsesForm::finish(const AnswerEnd& end, const AnswerUsage& usage, Json& made) const {
  made["status"] = status_of(end);
  if (end.reason != "stop") {
    const char* reason = end.reason == "length" ? "max_output_tokens" : "content_filter";
    made["incomplete_details"] = Json{{"reason", reason}};
  }
  made["usage"] =
      Json{{"input_tokens", usage.num_prompt_tokens},
           {"input_tokens_details", Json{{"cached_tokens", usage.num_cached_tokens}}},
           {"output_tokens", usage.num_tokens},
           {"output_tokens_details", Json{{"reasoning_tokens", usage.num_reasoning_tokens}}},
           {"total_tokens", usage.num_prompt_tokens + usage.num_tokens}};
}

// ---- a stream ----

void ResponsesForm::write(const char* type, Json event, std::string& out) {
  Json made = Json{{"type", type}, {"sequence_number", num_events_++}};
  made.update(event);
  out += "event: ";
  out += type;
  out += "\ndata: " + made.dump(JsonStyle{.replaces_bad_utf8 = true}) + "\n\n";
}

Json ResponsesForm::place() const {
  Json made =
      Json{{"item_id", item_id(part_)}, {"output_index", static_cast<std::int64_t>(items_.size())}};
  if (part_ != Part::Call) made["content_index"] = 0;
  return made;
}

void ResponsesForm::open(Part part, std::string& out) {
  if (part_ == part) return;
  if (part_ != Part::None) close(nullptr, out);
  part_ = part;
  write("response.output_item.added",
        Json{{"output_index", static_cast<std::int64_t>(items_.size())},
             {"item", item(part, "", "in_progress")}},
        out);
  if (part == Part::Call) return;
  Json event = place();
  event["part"] = content_part(part, "");
  write("response.content_part.added", event, out);
}

void ResponsesForm::close(const AnswerEnd* end, std::string& out) {
  Json done = place();
  if (part_ == Part::Call) {
    done["name"] = request_.function;
    done["arguments"] = text_;
    write("response.function_call_arguments.done", done, out);
  } else {
    done["text"] = text_;
    if (part_ == Part::Text) done["logprobs"] = logprobs_;
    write(part_ == Part::Text ? "response.output_text.done" : "response.reasoning_text.done", done,
          out);
    Json event = place();
    event["part"] = content_part(part_, text_);
    write("response.content_part.done", event, out);
  }
  const Json complete = item(part_, text_, end == nullptr ? "completed" : status_of(*end));
  write("response.output_item.done",
        Json{{"output_index", static_cast<std::int64_t>(items_.size())}, {"item", complete}}, out);
  items_.push_back(complete);
  text_.clear();
  logprobs_ = Json::array();
  part_ = Part::None;
}

void ResponsesForm::write_token(std::int32_t, const AnswerToken& token, const AnswerEnd* end,
                                const AnswerUsage&, std::string& out) {
  if (!std::exchange(has_begun_, true)) {
    write("response.created", Json{{"response", response("in_progress")}}, out);
    write("response.in_progress", Json{{"response", response("in_progress")}}, out);
  }
  if (!token.is_reasoning || request_.shows_reasoning) {
    open(token.is_reasoning ? Part::Reasoning : last_part(), out);
    text_ += token.text;
    num_held_bytes_ += token.text.size() + token.logprobs.size() * 256;
    Json event = place();
    event["delta"] = token.text;
    if (part_ == Part::Text) {
      event["logprobs"] = logprobs(token);
      for (const Json& entry : event["logprobs"]) logprobs_.push_back(entry);
    }
    write(part_ == Part::Call   ? "response.function_call_arguments.delta"
          : part_ == Part::Text ? "response.output_text.delta"
                                : "response.reasoning_text.delta",
          event, out);
  }
  if (end == nullptr) return;
  if (part_ != Part::None) close(end, out);
  end_ = *end;
}

void ResponsesForm::write_end(const AnswerUsage& usage, std::string& out) {
  Json made = response("completed");
  finish(end_, usage, made);
  write(end_.reason == "stop" ? "response.completed" : "response.incomplete",
        Json{{"response", made}}, out);
}

void ResponsesForm::write_error(int status, std::string_view message, std::string& out) {
  write("error", Json{{"code", std::to_string(status)}, {"message", message}, {"param", nullptr}},
        out);
}

// ---- a complete body ----

std::optional<std::string> ResponsesForm::body(std::span<const AnswerChoice> choices,
                                               const AnswerUsage& usage, std::size_t most_bytes) {
  Json items = Json::array();
  const AnswerChoice& choice = choices.front();  // there is no n
  if (!choice.reasoning.empty() && request_.shows_reasoning) {
    items.push_back(item(Part::Reasoning, std::string(choice.reasoning), "completed"));
  }
  logprobs_ = Json::array();
  for (const AnswerToken& token : choice.tokens) {
    if (token.is_reasoning) continue;
    for (const Json& entry : logprobs(token)) logprobs_.push_back(entry);
  }
  items.push_back(item(last_part(), std::string(choice.text), status_of(choice.end)));
  Json made = response("completed");
  made["output"] = items;
  finish(choice.end, usage, made);
  std::string text = made.dump(JsonStyle{.replaces_bad_utf8 = true});
  if (text.size() > most_bytes) return std::nullopt;
  return text;
}

}  // namespace

std::unique_ptr<AnswerForm> make_responses_form(AnswerFacts facts) {
  return std::make_unique<ResponsesForm>(std::move(facts));
}

}  // namespace metronome
