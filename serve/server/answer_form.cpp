// SPDX-License-Identifier: Apache-2.0
#include "serve/server/answer_form.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "models/text/tokenizer.h"

namespace metronome {

std::int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
}

void AnswerForm::write_error(int status, std::string_view message, std::string& out) {
  out += "data: " + error_json(status, message) + "\n\ndata: [DONE]\n\n";
}

void AnswerForm::add_header(std::string_view id_prefix, const char* object) {
  json_.clear();
  json_.begin_object();
  json_.field("id", std::string(id_prefix) + facts_.id);
  json_.field("object", object);
  json_.field("created", facts_.created);
  json_.field("model", model_.name);
}

void AnswerForm::add_usage(const AnswerUsage& usage) {
  json_.key("usage").begin_object();
  json_.field("prompt_tokens", usage.num_prompt_tokens);
  const std::int32_t num_tokens = request_.hides_answer ? 0 : usage.num_tokens;
  json_.field("completion_tokens", num_tokens);
  json_.field("total_tokens", usage.num_prompt_tokens + num_tokens);
  json_.key("prompt_tokens_details").begin_object();
  json_.field("cached_tokens", usage.num_cached_tokens);
  json_.end_object();
  if (usage.num_reasoning_tokens > 0) {
    json_.key("completion_tokens_details").begin_object();
    json_.field("reasoning_tokens", usage.num_reasoning_tokens);
    json_.end_object();
  }
  json_.end_object();
}

void AnswerForm::write_data(std::string& out) const {
  out += fmt::format("data: {}\n\n", json_.view());
}

std::string AnswerForm::token_text(TokenId id) const {
  const TokenId ids[] = {id};
  return decode(*model_.tokenizer, ids, false);
}

std::unique_ptr<AnswerForm> make_answer_form(AnswerFacts facts) {
  switch (facts.request->kind) {
    case ApiKind::Completion:
    case ApiKind::Chat: return make_openai_form(std::move(facts));
    case ApiKind::Generate: return make_generate_form(std::move(facts));
    case ApiKind::Native: return make_native_form(std::move(facts));
    case ApiKind::Responses: return make_responses_form(std::move(facts));
    case ApiKind::Messages: return make_messages_form(std::move(facts));
    case ApiKind::Embeddings: return make_embeddings_form(std::move(facts));
    case ApiKind::NativeSampling: break;  // no request
  }
  return nullptr;
}

}  // namespace metronome
