// SPDX-License-Identifier: Apache-2.0
// Answers of SGLang's /generate. As there, each event of a stream has the whole text so far.
#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "serve/server/answer_form.h"
#include "serve/server/simulated_logprobs.h"

namespace metronome {
namespace {

class NativeForm final : public AnswerForm {
 public:
  explicit NativeForm(AnswerFacts facts)
      : AnswerForm(std::move(facts)), choices_(static_cast<std::size_t>(request_.num_choices())) {}

  void write_token(std::int32_t choice, const AnswerToken& token, const AnswerEnd* end,
                   const AnswerUsage& usage, std::string& out) override;
  void write_end(const AnswerUsage&, std::string& out) override { out += "data: [DONE]\n\n"; }
  std::optional<std::string> body(std::span<const AnswerChoice> choices, const AnswerUsage& usage,
                                  std::size_t most_bytes) override;
  std::size_t num_held_bytes() const override { return num_held_bytes_; }

 private:
  // A choice so far.
  struct Written {
    std::string text;
    std::vector<TokenId> ids;
    std::vector<std::vector<TokenLogprob>> logprobs;
    std::int32_t num_cached_tokens = 0;
  };

  void add(Written& choice, const AnswerToken& token) const;
  void add_output(std::int32_t index, const Written& choice, const AnswerEnd* end);
  void add_finish_reason(const AnswerEnd* end, std::size_t num_tokens);
  void add_logprob(const TokenLogprob& entry);
  void add_top_logprobs(std::span<const TokenLogprob> logprobs);
  void add_prompt_logprobs(std::int32_t index);
  void add_logprobs(std::int32_t index, const Written& choice);
  bool is_list() const { return request_.num_choices() > 1 || request_.is_list; }

  std::vector<Written> choices_;
  std::size_t num_held_bytes_ = 0;
};

void NativeForm::add(Written& choice, const AnswerToken& token) const {
  choice.text += token.text;
  choice.num_cached_tokens = std::max(choice.num_cached_tokens, token.num_cached_tokens);
  if (!token.is_token()) return;
  choice.ids.push_back(token.id);
  if (request_.sampling.num_logprobs < 0) return;
  choice.logprobs.emplace_back(token.logprobs.begin(), token.logprobs.end());
}

void NativeForm::add_finish_reason(const AnswerEnd* end, std::size_t num_tokens) {
  json_.key("finish_reason");
  if (end == nullptr) return json_.null();
  json_.begin_object();
  json_.field("type", end->reason);
  if (end->reason == "length") json_.field("length", static_cast<std::int64_t>(num_tokens));
  if (end->stop) json_.field("matched", *end->stop);
  json_.end_object();
}

// A list of the value, the token's id, and null in the place of its text.
void NativeForm::add_logprob(const TokenLogprob& entry) {
  json_.begin_array();
  json_.value(static_cast<double>(entry.logprob));
  json_.value(value(entry.token));
  json_.null();
  json_.end_array();
}

void NativeForm::add_top_logprobs(std::span<const TokenLogprob> logprobs) {
  json_.begin_array();
  // The token itself precedes the likeliest tokens.
  for (std::size_t i = 1; i < logprobs.size(); ++i) add_logprob(logprobs[i]);
  json_.end_array();
}

// As in SGLang, the first of the prompt's tokens has no value: null, and null instead of a list.
void NativeForm::add_prompt_logprobs(std::int32_t index) {
  std::span<const TokenId> prompt;
  if (request_.num_prompt_logprobs >= 0)
    prompt = request_.shown_prompts[static_cast<std::size_t>(index / request_.n)];
  const auto first = static_cast<std::size_t>(request_.first_prompt_logprob);
  const auto logprobs_at = [&](std::size_t i) {
    return simulated_prompt_logprobs(model_, request_.sampling.seed, prompt, i,
                                     request_.num_prompt_logprobs);
  };
  json_.key("input_token_logprobs").begin_array();
  for (std::size_t i = first; i < prompt.size(); ++i) {
    if (i > first) {
      add_logprob(logprobs_at(i).front());
      continue;
    }
    json_.begin_array();
    json_.null();
    json_.value(value(prompt[i]));
    json_.null();
    json_.end_array();
  }
  json_.end_array();
  if (request_.sampling.num_logprobs == 0) return;
  json_.key("input_top_logprobs").begin_array();
  for (std::size_t i = first; i < prompt.size(); ++i) {
    i > first ? add_top_logprobs(logprobs_at(i)) : json_.null();
  }
  json_.end_array();
}

void NativeForm::add_logprobs(std::int32_t index, const Written& choice) {
  if (request_.sampling.num_logprobs < 0) return;
  add_prompt_logprobs(index);
  json_.key("output_token_logprobs").begin_array();
  for (const std::vector<TokenLogprob>& logprobs : choice.logprobs) {
    if (!logprobs.empty()) add_logprob(logprobs.front());
  }
  json_.end_array();
  if (request_.sampling.num_logprobs == 0) return;
  json_.key("output_top_logprobs").begin_array();
  for (const std::vector<TokenLogprob>& logprobs : choice.logprobs) add_top_logprobs(logprobs);
  json_.end_array();
}

void NativeForm::add_output(std::int32_t index, const Written& choice, const AnswerEnd* end) {
  json_.begin_object();
  json_.field("text", choice.text);
  json_.key("output_ids").begin_array();
  for (const TokenId id : choice.ids) json_.value(value(id));
  json_.end_array();
  json_.key("meta_info").begin_object();
  json_.field("id", is_list() ? fmt::format("{}-{}", facts_.id, index) : facts_.id);
  add_finish_reason(end, choice.ids.size());
  json_.field("prompt_tokens",
              request_.prompt_tokens[static_cast<std::size_t>(index / request_.n)]);
  json_.field("weight_version", "default");
  json_.field("completion_tokens", static_cast<std::int64_t>(choice.ids.size()));
  json_.field("cached_tokens", choice.num_cached_tokens);
  add_logprobs(index, choice);
  json_.end_object();
  if (request_.is_stream && is_list()) json_.field("index", index);
  json_.end_object();
}

void NativeForm::write_token(std::int32_t index, const AnswerToken& token, const AnswerEnd* end,
                             const AnswerUsage&, std::string& out) {
  Written& choice = choices_[static_cast<std::size_t>(index)];
  add(choice, token);
  num_held_bytes_ += token.text.size() + sizeof token.id + 32 + token.logprobs.size_bytes();
  json_.clear();
  add_output(index, choice, end);
  write_data(out);
}

std::optional<std::string> NativeForm::body(std::span<const AnswerChoice> choices,
                                            const AnswerUsage&, std::size_t most_bytes) {
  json_.clear();
  if (is_list()) json_.begin_array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Written written;
    for (const AnswerToken& token : choices[i].tokens) add(written, token);
    add_output(static_cast<std::int32_t>(i), written, &choices[i].end);
    if (json_.size() > most_bytes) return std::nullopt;
  }
  if (is_list()) json_.end_array();
  return std::string(json_.view());
}

}  // namespace

std::unique_ptr<AnswerForm> make_native_form(AnswerFacts facts) {
  return std::make_unique<NativeForm>(std::move(facts));
}

}  // namespace metronome
