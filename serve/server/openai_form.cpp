// SPDX-License-Identifier: Apache-2.0
// Answers of OpenAI's completions and chat completions, with the fields that vLLM adds.
#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "core/base/json.h"
#include "models/text/tokenizer.h"
#include "serve/server/answer_form.h"
#include "serve/server/simulated_logprobs.h"

namespace metronome {
namespace {

class OpenAiForm final : public AnswerForm {
 public:
  explicit OpenAiForm(AnswerFacts facts)
      : AnswerForm(std::move(facts)),
        is_chat_(request_.kind == ApiKind::Chat),
        choices_(static_cast<std::size_t>(request_.num_choices())) {}

  void write_token(std::int32_t choice, const AnswerToken& token, const AnswerEnd* end,
                   const AnswerUsage& usage, std::string& out) override;
  void write_end(const AnswerUsage& usage, std::string& out) override;
  std::optional<std::string> body(std::span<const AnswerChoice> choices, const AnswerUsage& usage,
                                  std::size_t most_bytes) override;

 private:
  struct Written {
    bool has_begun = false;
    std::int64_t num_characters = 0;
    bool has_called = false;
  };
  // A prompt that is a part of the answer (`echo`), with tokens in the form of answered ones.
  struct Echo {
    std::string text;
    std::vector<std::string> texts;                   // of the tokens
    std::vector<std::vector<TokenLogprob>> logprobs;  // of the tokens; the first has none
    std::vector<AnswerToken> tokens;
  };
  Echo echo_of(std::int32_t index) const;

  void begin(const char* of_chat) {
    add_header(is_chat_ ? "chatcmpl-" : "cmpl-", is_chat_ ? of_chat : "text_completion");
  }
  void add_delta(std::int32_t index, const AnswerToken& token, bool is_first);
  void add_message(std::int32_t index, const AnswerChoice& choice);
  void add_call(std::int32_t index, std::string_view arguments, bool is_first, bool is_stream);
  std::string_view finish_reason(const AnswerEnd& end) const;
  void add_token_ids(std::span<const AnswerToken> tokens);
  void add_prompt_ids(std::int32_t index);
  void add_prompt_logprobs(std::int32_t index);
  bool hides(const AnswerToken& token) const {
    return token.is_reasoning && !request_.shows_reasoning;
  }
  const std::vector<TokenId>& prompt_of(std::int32_t index) const {
    return request_.shown_prompts[static_cast<std::size_t>(index / request_.n)];
  }
  void add_logprobs(std::span<const AnswerToken> tokens, std::int64_t offset);
  void add_chat_logprob(TokenId id, float logprob, std::span<const TokenLogprob> top);
  void add_text_logprobs(std::span<const AnswerToken> tokens, std::int64_t offset);
  bool fits() const { return json_.size() <= most_bytes_; }

  bool is_chat_;
  std::vector<Written> choices_;
  std::size_t most_bytes_ = SIZE_MAX;
};

void OpenAiForm::add_chat_logprob(TokenId id, float logprob, std::span<const TokenLogprob> top) {
  json_.begin_object();
  json_.field("token", token_text(id));
  json_.field("logprob", static_cast<double>(logprob));
  json_.key("bytes").begin_array();
  for (const char byte : model_.tokenizer->bytes_of(id)) {
    json_.value(static_cast<int>(static_cast<unsigned char>(byte)));
  }
  json_.end_array();
  if (!top.empty()) {
    json_.key("top_logprobs").begin_array();
    // The sampled token precedes the likeliest tokens.
    for (const TokenLogprob& likely : top.subspan(1)) {
      add_chat_logprob(likely.token, likely.logprob, {});
    }
    json_.end_array();
  }
  json_.end_object();
}

OpenAiForm::Echo OpenAiForm::echo_of(std::int32_t index) const {
  Echo echo;
  const std::vector<TokenId>& prompt = prompt_of(index);
  echo.text = decode(*model_.tokenizer, prompt, request_.skips_special_tokens);
  if (request_.sampling.num_logprobs < 0) return echo;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    echo.texts.push_back(token_text(prompt[i]));
    echo.logprobs.push_back(simulated_prompt_logprobs(model_, request_.sampling.seed, prompt, i,
                                                      request_.sampling.num_logprobs));
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    echo.tokens.push_back({.id = prompt[i], .text = echo.texts[i], .logprobs = echo.logprobs[i]});
  }
  return echo;
}

void OpenAiForm::add_text_logprobs(std::span<const AnswerToken> tokens, std::int64_t offset) {
  const auto has = [this](const AnswerToken& token) { return token.is_token() && fits(); };
  json_.key("tokens").begin_array();
  for (const AnswerToken& token : tokens) {
    if (has(token)) json_.value(token_text(token.id));
  }
  json_.end_array();
  json_.key("token_logprobs").begin_array();
  for (const AnswerToken& token : tokens) {
    if (!has(token)) continue;
    token.logprobs.empty() ? json_.null()
                           : json_.value(static_cast<double>(token.logprobs[0].logprob));
  }
  json_.end_array();
  json_.key("top_logprobs").begin_array();
  for (const AnswerToken& token : tokens) {
    if (!has(token)) continue;
    if (token.logprobs.empty()) {
      json_.null();
      continue;
    }
    // The sampled token comes first, and may be one more than asked for, as in vLLM. The keys are
    // texts. If two tokens have the same text, the sampled or likelier one stays.
    Json top = Json::object();
    for (const TokenLogprob& entry : token.logprobs) {
      const std::string text = token_text(entry.token);
      if (!top.contains(text)) top[text] = entry.logprob;
    }
    json_.raw(top.dump());
  }
  json_.end_array();
  json_.key("text_offset").begin_array();
  for (const AnswerToken& token : tokens) {
    if (has(token)) json_.value(offset);
    offset += num_characters(token.text);
  }
  json_.end_array();
}

// The value of "logprobs" for some tokens of a choice. `offset` characters of it precede them.
void OpenAiForm::add_logprobs(std::span<const AnswerToken> tokens, std::int64_t offset) {
  if (request_.sampling.num_logprobs < 0) return json_.null();
  json_.begin_object();
  if (is_chat_) {
    json_.key("content").begin_array();
    for (const AnswerToken& token : tokens) {
      if (!token.logprobs.empty() && fits()) {
        add_chat_logprob(token.id, token.logprobs[0].logprob, token.logprobs);
      }
    }
    json_.end_array();
  } else {
    add_text_logprobs(tokens, offset);
  }
  json_.end_object();
}

// ---- a stream ----

std::string_view OpenAiForm::finish_reason(const AnswerEnd& end) const {
  // As in vLLM, "stop" stays where the request left no choice.
  const bool is_call = !request_.function.empty() && !request_.is_function_named;
  return is_call && end.reason == "stop" ? "tool_calls" : end.reason;
}

void OpenAiForm::add_call(std::int32_t index, std::string_view arguments, bool is_first,
                          bool is_stream) {
  json_.key("tool_calls").begin_array();
  json_.begin_object();
  if (is_stream) json_.field("index", 0);
  if (is_first) {
    json_.field("id", fmt::format("call_{}-{}", facts_.id, index));
    json_.field("type", "function");
  }
  json_.key("function").begin_object();
  if (is_first) json_.field("name", request_.function);
  json_.field("arguments", arguments);
  json_.end_object();
  json_.end_object();
  json_.end_array();
}

void OpenAiForm::add_delta(std::int32_t index, const AnswerToken& token, bool is_first) {
  Written& choice = choices_[static_cast<std::size_t>(index)];
  json_.key("delta").begin_object();
  // Written with the first token, as clients take the first event for the first token.
  if (is_first) json_.field("role", "assistant");
  if (hides(token)) {
    json_.field("content", "");
  } else if (token.is_reasoning) {
    json_.field("reasoning_content", token.text);
  } else if (request_.function.empty()) {
    json_.field("content", token.text);
  } else {
    add_call(index, token.text, !std::exchange(choice.has_called, true), true);
  }
  json_.end_object();
}

void OpenAiForm::add_token_ids(std::span<const AnswerToken> tokens) {
  if (!request_.returns_token_ids) return;
  json_.key("token_ids").begin_array();
  for (const AnswerToken& token : tokens) {
    if (token.is_token() && fits()) json_.value(value(token.id));
  }
  json_.end_array();
}

void OpenAiForm::add_prompt_ids(std::int32_t index) {
  if (!request_.returns_token_ids) return;
  json_.key("prompt_token_ids").begin_array();
  for (const TokenId id : prompt_of(index)) json_.value(value(id));
  json_.end_array();
}

// As in vLLM: null for the first token, then an object for each token with the likeliest ones and
// itself, by their ids.
void OpenAiForm::add_prompt_logprobs(std::int32_t index) {
  if (request_.num_prompt_logprobs < 0) return;
  const std::vector<TokenId>& prompt = prompt_of(index);
  json_.key("prompt_logprobs").begin_array();
  for (std::size_t i = 0; i < prompt.size() && fits(); ++i) {
    const std::vector<TokenLogprob> logprobs = simulated_prompt_logprobs(
        model_, request_.sampling.seed, prompt, i, request_.num_prompt_logprobs);
    if (logprobs.empty()) {
      json_.null();
      continue;
    }
    json_.begin_object();
    // The prompt's token comes first, and is the likeliest one, too.
    for (std::size_t rank = logprobs.size() > 1 ? 1 : 0; rank < logprobs.size(); ++rank) {
      json_.key(fmt::format("{}", value(logprobs[rank].token))).begin_object();
      json_.field("logprob", static_cast<double>(logprobs[rank].logprob));
      json_.field("rank", static_cast<std::int64_t>(std::max<std::size_t>(rank, 1)));
      json_.field("decoded_token", token_text(logprobs[rank].token));
      json_.end_object();
    }
    json_.end_object();
  }
  json_.end_array();
}

void OpenAiForm::write_token(std::int32_t index, const AnswerToken& token, const AnswerEnd* end,
                             const AnswerUsage& usage, std::string& out) {
  Written& choice = choices_[static_cast<std::size_t>(index)];
  const bool is_first = !std::exchange(choice.has_begun, true);
  Echo echo;
  if (request_.echoes && is_first) echo = echo_of(index);
  if (!request_.hides_answer) {
    echo.text += token.text;
    echo.tokens.push_back(token);
  }
  begin("chat.completion.chunk");
  json_.key("choices").begin_array();
  json_.begin_object();
  json_.field("index", index);
  if (is_chat_) {
    add_delta(index, token, is_first);
  } else {
    json_.field("text", echo.text);
  }
  json_.key("logprobs");
  add_logprobs(echo.tokens, choice.num_characters);
  json_.key("finish_reason");
  end == nullptr ? json_.null() : json_.value(finish_reason(*end));
  add_token_ids({&token, 1});
  if (!is_chat_ && is_first) add_prompt_ids(index);
  json_.end_object();
  json_.end_array();
  if (is_chat_ && is_first) add_prompt_ids(index);
  if (request_.wants_continuous_usage) {
    add_usage(usage);
  } else if (request_.wants_usage) {
    json_.key("usage").null();
  }
  json_.end_object();
  choice.num_characters += num_characters(echo.text);
  write_data(out);
}

void OpenAiForm::write_end(const AnswerUsage& usage, std::string& out) {
  if (request_.wants_usage) {
    begin("chat.completion.chunk");
    json_.key("choices").begin_array();
    json_.end_array();
    add_usage(usage);
    json_.end_object();
    write_data(out);
  }
  out += "data: [DONE]\n\n";
}

// ---- a complete body ----

void OpenAiForm::add_message(std::int32_t index, const AnswerChoice& choice) {
  json_.key("message").begin_object();
  json_.field("role", "assistant");
  if (request_.function.empty()) {
    json_.field("content", choice.text);
  } else {
    json_.key("content").null();
    add_call(index, choice.text, true, false);
  }
  if (!choice.reasoning.empty() && request_.shows_reasoning) {
    json_.field("reasoning_content", choice.reasoning);
  }
  json_.end_object();
}

std::optional<std::string> OpenAiForm::body(std::span<const AnswerChoice> choices,
                                            const AnswerUsage& usage, std::size_t most_bytes) {
  most_bytes_ = most_bytes;
  begin("chat.completion");
  json_.key("choices").begin_array();
  std::int32_t index = -1;
  for (const AnswerChoice& choice : choices) {
    ++index;
    Echo all;
    if (request_.echoes) all = echo_of(index);
    if (!request_.hides_answer) {
      all.text += choice.text;
      all.tokens.insert(all.tokens.end(), choice.tokens.begin(), choice.tokens.end());
    }
    json_.begin_object();
    json_.field("index", index);
    if (is_chat_) {
      add_message(index, choice);
    } else {
      json_.field("text", all.text);
    }
    json_.key("logprobs");
    add_logprobs(all.tokens, 0);
    json_.field("finish_reason", finish_reason(choice.end));
    add_token_ids(choice.tokens);
    if (!is_chat_) {
      add_prompt_ids(index);
      add_prompt_logprobs(index);
    }
    json_.end_object();
    if (!fits()) return std::nullopt;
  }
  json_.end_array();
  if (is_chat_) {
    add_prompt_ids(0);
    add_prompt_logprobs(0);
  }
  add_usage(usage);
  json_.end_object();
  if (!fits()) return std::nullopt;
  return std::string(json_.view());
}

}  // namespace

std::unique_ptr<AnswerForm> make_openai_form(AnswerFacts facts) {
  return std::make_unique<OpenAiForm>(std::move(facts));
}

}  // namespace metronome
