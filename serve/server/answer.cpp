// SPDX-License-Identifier: Apache-2.0
#include "serve/server/answer.h"

#include <algorithm>
#include <utility>

#include "core/base/json.h"
#include "models/text/tokenizer.h"

namespace metronome {
namespace {

const char* finish_reason_of(EndReason reason) {
  switch (reason) {
    case EndReason::Stop: return "stop";
    case EndReason::Aborted: return "abort";  // vLLM's, when the server ends it
    default: return "length";
  }
}

// The number of characters in a UTF-8 text.
std::int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
}

// With what an allocation takes.
std::size_t bytes_of(const std::vector<TokenLogprob>& logprobs) {
  return 16 + logprobs.size() * sizeof(TokenLogprob);
}

bool is_chat(const ApiRequest& request) { return request.kind == ApiKind::Chat; }

}  // namespace

Answer::Answer(ApiRequest request, const ServedModel& model, const std::string& id,
               std::int64_t created)
    : request_(std::move(request)),
      model_(model),
      id_((is_chat(request_) ? "chatcmpl-" : "cmpl-") + id),
      created_(created),
      num_open_(request_.num_choices()) {
  choices_.reserve(static_cast<std::size_t>(num_open_));
  for (std::int32_t i = 0; i < num_open_; ++i) choices_.emplace_back(*model.tokenizer, request_);
}

bool Answer::on_token(std::int32_t index, TokenId id, const std::vector<TokenLogprob>& logprobs,
                      std::int32_t num_cached_tokens, bool is_stop) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  if (choice.finish_reason != nullptr) return false;
  const std::string text = choice.source.push(id, is_stop);
  choice.text += text;
  choice.tokens.push_back({id, static_cast<std::uint32_t>(text.size())});
  if (!logprobs.empty()) {
    choice.logprobs.resize(choice.tokens.size());
    choice.logprobs.back() = logprobs;
    choice.logprob_bytes += bytes_of(logprobs);
  }
  choice.num_cached_tokens = num_cached_tokens;
  if (!choice.source.is_stopped()) return false;
  end(choice, "stop");
  return true;
}

void Answer::on_end(std::int32_t index, EndReason reason) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  if (choice.finish_reason != nullptr) return;
  const std::string rest = choice.source.finish();
  // Held-back text is added to the last unwritten token. If that was written, the text becomes a
  // separate event.
  if (!rest.empty() && !has_event(choice)) choice.tokens.push_back({});
  if (!rest.empty()) choice.tokens.back().num_bytes += static_cast<std::uint32_t>(rest.size());
  choice.text += rest;
  end(choice, choice.source.is_stopped() ? "stop" : finish_reason_of(reason));
}

void Answer::end(Choice& choice, const char* reason) {
  choice.finish_reason = reason;
  --num_open_;
}

std::int32_t Answer::num_completion_tokens() const {
  std::int32_t sum = 0;
  for (const Choice& choice : choices_) sum += choice.source.num_tokens();
  return sum;
}

std::size_t Answer::num_unsent_bytes() const {
  std::size_t sum = 0;
  for (const Choice& choice : choices_) {
    sum += choice.tokens.capacity() * sizeof(Token) + choice.text.capacity();
    sum += choice.logprobs.capacity() * sizeof choice.logprobs.front() + choice.logprob_bytes;
  }
  return sum;
}

// ---- common to both forms ----

void Answer::add_header(const char* object) {
  json_.clear();
  json_.begin_object();
  json_.field("id", id_);
  json_.field("object", object);
  json_.field("created", created_);
  json_.field("model", model_.name);
}

void Answer::add_usage(std::int32_t num_tokens) {
  std::int32_t num_cached = 0;
  for (std::size_t i = 0; i < choices_.size(); i += static_cast<std::size_t>(request_.n)) {
    num_cached += choices_[i].num_cached_tokens;
  }
  json_.key("usage").begin_object();
  json_.field("prompt_tokens", request_.num_prompt_tokens);
  json_.field("completion_tokens", num_tokens);
  json_.field("total_tokens", request_.num_prompt_tokens + num_tokens);
  json_.key("prompt_tokens_details").begin_object();
  json_.field("cached_tokens", num_cached);
  json_.end_object();
  json_.end_object();
}

std::string Answer::token_text(TokenId id) const {
  const TokenId ids[] = {id};
  return decode(*model_.tokenizer, ids, false);
}

void Answer::add_chat_logprob(TokenId id, float logprob, std::span<const TokenLogprob> top) {
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

// The value of "logprobs" for some tokens of a choice.
void Answer::add_logprobs(Choice& choice, std::span<const TokenView> tokens) {
  if (request_.sampling.num_logprobs < 0) return json_.null();
  const auto has = [this](const TokenView& token) {
    return !token.logprobs.empty() && json_.size() <= most_body_bytes_;
  };
  json_.begin_object();
  if (is_chat(request_)) {
    json_.key("content").begin_array();
    for (const TokenView& token : tokens) {
      if (has(token)) add_chat_logprob(token.id, token.logprobs[0].logprob, token.logprobs);
    }
    json_.end_array();
    return json_.end_object();
  }
  json_.key("tokens").begin_array();
  for (const TokenView& token : tokens) {
    if (has(token)) json_.value(token_text(token.id));
  }
  json_.end_array();
  json_.key("token_logprobs").begin_array();
  for (const TokenView& token : tokens) {
    if (has(token)) json_.value(static_cast<double>(token.logprobs[0].logprob));
  }
  json_.end_array();
  json_.key("top_logprobs").begin_array();
  for (const TokenView& token : tokens) {
    if (!has(token)) continue;
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
  std::int64_t offset = choice.num_characters;
  for (const TokenView& token : tokens) {
    if (has(token)) json_.value(offset);
    offset += num_characters(token.text);
  }
  json_.end_array();
  json_.end_object();
}

// ---- a stream ----

bool Answer::has_event(const Choice& choice) {
  const bool has_token = choice.next_token < choice.tokens.size();
  return has_token || (choice.finish_reason != nullptr && !choice.is_written);
}

bool Answer::has_events() const { return std::any_of(choices_.begin(), choices_.end(), has_event); }

// The next token. Valid until tokens come or are forgotten.
Answer::TokenView Answer::read_token(Choice& choice) {
  const std::size_t at = choice.next_token++;
  const Token token = choice.tokens[at];
  TokenView view{
      token.id, std::string_view(choice.text).substr(choice.next_byte, token.num_bytes), {}};
  if (at < choice.logprobs.size()) view.logprobs = choice.logprobs[at];
  choice.next_byte += token.num_bytes;
  return view;
}

// Forgets the written tokens, not one by one if many are waiting.
void Answer::forget_written(Choice& choice) {
  constexpr std::size_t kMaxKept = 4096, kMinShrunk = 256;
  if (choice.next_token < std::min(choice.tokens.size(), kMaxKept)) return;
  const auto erase = [&choice](auto& list) {
    const std::size_t count = std::min(choice.next_token, list.size());
    list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count));
    if (list.capacity() > 2 * (list.size() + kMinShrunk)) list.shrink_to_fit();
  };
  for (std::size_t i = 0; i < std::min(choice.next_token, choice.logprobs.size()); ++i) {
    choice.logprob_bytes -= bytes_of(choice.logprobs[i]);
  }
  erase(choice.tokens);
  erase(choice.logprobs);
  choice.text.erase(0, choice.next_byte);
  if (choice.text.capacity() > 2 * (choice.text.size() + kMinShrunk)) choice.text.shrink_to_fit();
  choice.next_token = choice.next_byte = 0;
}

void Answer::write_event(std::int32_t index, const TokenView& token, const char* finish_reason,
                         std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  num_written_tokens_ += token.id == kRest ? 0 : 1;
  if (request_.kind == ApiKind::Generate) {
    json_.clear();
    json_.begin_object();
    json_.field("index", index);
    json_.field("token", token.text);
    json_.field("token_id", token.id == kRest ? 0 : value(token.id));
    json_.key("finish_reason");
    finish_reason == nullptr ? json_.null() : json_.value(finish_reason);
    json_.end_object();
  } else {
    add_header(is_chat(request_) ? "chat.completion.chunk" : "text_completion");
    json_.key("choices").begin_array();
    json_.begin_object();
    json_.field("index", index);
    if (is_chat(request_)) {
      json_.key("delta").begin_object();
      // Written with the first token, as clients take the first event for the first token.
      if (!choice.has_begun) json_.field("role", "assistant");
      json_.field("content", token.text);
      json_.end_object();
    } else {
      json_.field("text", token.text);
    }
    json_.key("logprobs");
    add_logprobs(choice, {&token, 1});
    json_.key("finish_reason");
    finish_reason == nullptr ? json_.null() : json_.value(finish_reason);
    json_.end_object();
    json_.end_array();
    if (request_.wants_continuous_usage) {
      add_usage(num_written_tokens_);
    } else if (request_.wants_usage) {
      json_.key("usage").null();
    }
    json_.end_object();
  }
  choice.has_begun = true;
  choice.num_characters += num_characters(token.text);
  out += "data: ";
  out += json_.view();
  out += "\n\n";
}

// Returns false if the choice has nothing to write.
bool Answer::write_next(std::int32_t index, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  if (!has_event(choice)) return false;
  forget_written(choice);
  if (choice.tokens.empty()) choice.tokens.push_back({});  // to say why the answer ends
  const TokenView token = read_token(choice);
  choice.is_written = choice.finish_reason != nullptr && choice.next_token == choice.tokens.size();
  write_event(index, token, choice.is_written ? choice.finish_reason : nullptr, out);
  return true;
}

void Answer::write_events(std::string& out, std::size_t most_bytes) {
  if (is_closed_) return;
  for (bool has_written = true; has_written && out.size() < most_bytes;) {
    has_written = false;
    for (std::int32_t i = 0; i < request_.num_choices(); ++i) {
      has_written = write_next(i, out) || has_written;
    }
  }
  for (Choice& choice : choices_) forget_written(choice);
  if (!is_done() || has_events()) return;
  if (request_.wants_usage) {
    add_header(is_chat(request_) ? "chat.completion.chunk" : "text_completion");
    json_.key("choices").begin_array();
    json_.end_array();
    add_usage(num_completion_tokens());
    json_.end_object();
    out += "data: ";
    out += json_.view();
    out += "\n\n";
  }
  out += "data: [DONE]\n\n";
  is_closed_ = true;
}

void Answer::write_error(int status, std::string_view message, std::string& out) {
  if (is_closed_) return;
  out += "data: " + error_json(status, message) + "\n\ndata: [DONE]\n\n";
  is_closed_ = true;
}

// ---- a complete body ----

std::optional<std::string> Answer::body(std::size_t most_bytes) {
  most_body_bytes_ = most_bytes;
  if (request_.kind == ApiKind::Generate) {
    json_.clear();
    json_.begin_object();
  } else {
    add_header(is_chat(request_) ? "chat.completion" : "text_completion");
    json_.key("choices").begin_array();
  }
  for (std::int32_t i = 0; i < request_.num_choices(); ++i) {
    Choice& choice = choices_[static_cast<std::size_t>(i)];
    const std::string text = choice.text;
    if (request_.kind == ApiKind::Generate) {
      json_.field("text", text);
      json_.field("finish_reason", choice.finish_reason);
      continue;
    }
    json_.begin_object();
    json_.field("index", i);
    if (is_chat(request_)) {
      json_.key("message").begin_object();
      json_.field("role", "assistant");
      json_.field("content", text);
      json_.end_object();
    } else {
      json_.field("text", text);
    }
    json_.key("logprobs");
    std::vector<TokenView> tokens;
    const bool has_logprobs = request_.sampling.num_logprobs >= 0;
    while (has_logprobs && choice.next_token < choice.tokens.size()) {
      tokens.push_back(read_token(choice));
    }
    add_logprobs(choice, tokens);
    json_.field("finish_reason", choice.finish_reason);
    json_.end_object();
  }
  if (request_.kind != ApiKind::Generate) json_.end_array();
  add_usage(num_completion_tokens());
  json_.end_object();
  if (json_.size() > most_bytes) return std::nullopt;
  return std::string(json_.view());
}

}  // namespace metronome
