// SPDX-License-Identifier: Apache-2.0
// Answers of Anthropic's /v1/messages. A stream has a block for thinking, and one for the text or
// the use of a tool.
#include <utility>

#include "core/base/json.h"
#include "serve/server/answer_form.h"

namespace metronome {
namespace {

class MessagesForm final : public AnswerForm {
 public:
  using AnswerForm::AnswerForm;

  void write_token(std::int32_t choice, const AnswerToken& token, const AnswerEnd* end,
                   const AnswerUsage& usage, std::string& out) override;
  void write_end(const AnswerUsage& usage, std::string& out) override;
  void write_error(int status, std::string_view message, std::string& out) override;
  std::optional<std::string> body(std::span<const AnswerChoice> choices, const AnswerUsage& usage,
                                  std::size_t most_bytes) override;

 private:
  enum class Block : std::uint8_t { None, Thinking, Text, ToolUse };

  Block last_block() const { return request_.function.empty() ? Block::Text : Block::ToolUse; }
  Json block(Block kind, std::string_view text, const Json& input) const;
  Json message() const;
  static Json usage_of(const AnswerUsage& usage, std::int32_t num_tokens);
  const char* stop_reason(const AnswerEnd& end) const;
  Json delta(std::string_view text) const;  // of the open block

  static void write(const char* type, const Json& event, std::string& out);
  void open(Block kind, std::string& out);
  void close(std::string& out);

  bool has_begun_ = false;
  Block open_ = Block::None;
  std::int64_t num_blocks_ = 0;  // that are complete
  AnswerEnd end_;
};

// ---- objects ----

Json MessagesForm::block(Block kind, std::string_view text, const Json& input) const {
  if (kind == Block::Text) return Json{{"type", "text"}, {"text", text}};
  if (kind == Block::Thinking) {
    return Json{{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
  }
  return Json{{"type", "tool_use"},
              {"id", "toolu_" + facts_.id},
              {"name", request_.function},
              {"input", input}};
}

Json MessagesForm::message() const {
  return Json{{"id", "msg_" + facts_.id}, {"type", "message"},        {"role", "assistant"},
              {"model", model_.name},     {"content", Json::array()}, {"stop_reason", nullptr},
              {"stop_sequence", nullptr}};
}

// As there, cached tokens are none of input_tokens.
Json MessagesForm::usage_of(const AnswerUsage& usage, std::int32_t num_tokens) {
  return Json{{"input_tokens", usage.num_prompt_tokens - usage.num_cached_tokens},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", usage.num_cached_tokens},
              {"output_tokens", num_tokens}};
}

const char* MessagesForm::stop_reason(const AnswerEnd& end) const {
  if (end.stop) return "stop_sequence";
  if (end.reason != "stop") return "max_tokens";
  return request_.function.empty() ? "end_turn" : "tool_use";
}

// ---- a stream ----

void MessagesForm::write(const char* type, const Json& event, std::string& out) {
  Json made = Json{{"type", type}};
  made.update(event);
  out += "event: ";
  out += type;
  out += "\ndata: " + made.dump(JsonStyle{.replaces_bad_utf8 = true}) + "\n\n";
}

Json MessagesForm::delta(std::string_view text) const {
  if (open_ == Block::Text) return Json{{"type", "text_delta"}, {"text", text}};
  if (open_ == Block::Thinking) return Json{{"type", "thinking_delta"}, {"thinking", text}};
  return Json{{"type", "input_json_delta"}, {"partial_json", text}};
}

void MessagesForm::open(Block kind, std::string& out) {
  if (open_ == kind) return;
  if (open_ != Block::None) close(out);
  open_ = kind;
  write("content_block_start",
        Json{{"index", num_blocks_}, {"content_block", block(kind, "", Json::object())}}, out);
}

void MessagesForm::close(std::string& out) {
  if (open_ == Block::Thinking) {
    const Json signature = Json{{"type", "signature_delta"}, {"signature", facts_.id}};
    write("content_block_delta", Json{{"index", num_blocks_}, {"delta", signature}}, out);
  }
  write("content_block_stop", Json{{"index", num_blocks_++}}, out);
  open_ = Block::None;
}

void MessagesForm::write_token(std::int32_t, const AnswerToken& token, const AnswerEnd* end,
                               const AnswerUsage& usage, std::string& out) {
  if (!std::exchange(has_begun_, true)) {
    Json begun = message();
    begun["usage"] = usage_of(usage, usage.num_tokens);
    write("message_start", Json{{"message", begun}}, out);
  }
  if (!token.is_reasoning || request_.shows_reasoning) {
    open(token.is_reasoning ? Block::Thinking : last_block(), out);
    write("content_block_delta", Json{{"index", num_blocks_}, {"delta", delta(token.text)}}, out);
  }
  if (end == nullptr) return;
  if (open_ != Block::None) close(out);
  end_ = *end;
}

void MessagesForm::write_end(const AnswerUsage& usage, std::string& out) {
  Json stop = Json{{"stop_reason", stop_reason(end_)}, {"stop_sequence", nullptr}};
  if (end_.stop) stop["stop_sequence"] = *end_.stop;
  write("message_delta", Json{{"delta", stop}, {"usage", usage_of(usage, usage.num_tokens)}}, out);
  write("message_stop", Json::object(), out);
}

void MessagesForm::write_error(int, std::string_view message, std::string& out) {
  write("error", Json{{"error", Json{{"type", "api_error"}, {"message", message}}}}, out);
}

// ---- a complete body ----

std::optional<std::string> MessagesForm::body(std::span<const AnswerChoice> choices,
                                              const AnswerUsage& usage, std::size_t most_bytes) {
  const AnswerChoice& choice = choices.front();  // there is no n
  Json content = Json::array();
  if (!choice.reasoning.empty() && request_.shows_reasoning) {
    content.push_back(block(Block::Thinking, choice.reasoning, nullptr));
  }
  // Arguments that max_tokens cuts are no JSON.
  const Json input = Json::try_parse(choice.text).value_or(Json::object());
  content.push_back(block(last_block(), choice.text, input));
  Json made = message();
  made["content"] = content;
  made["stop_reason"] = stop_reason(choice.end);
  if (choice.end.stop) made["stop_sequence"] = *choice.end.stop;
  made["usage"] = usage_of(usage, usage.num_tokens);
  std::string text = made.dump(JsonStyle{.replaces_bad_utf8 = true});
  if (text.size() > most_bytes) return std::nullopt;
  return text;
}

}  // namespace

std::unique_ptr<AnswerForm> make_messages_form(AnswerFacts facts) {
  return std::make_unique<MessagesForm>(std::move(facts));
}

}  // namespace metronome
