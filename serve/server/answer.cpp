// SPDX-License-Identifier: Apache-2.0
#include "serve/server/answer.h"

#include <algorithm>
#include <utility>

#include "serve/server/simulated_logprobs.h"

namespace metronome {
namespace {

std::string_view finish_reason_of(EndReason reason) {
  switch (reason) {
    case EndReason::Stop: return "stop";
    case EndReason::Aborted: return "abort";  // vLLM's, when the server ends it
    default: return "length";
  }
}

// With what an allocation takes.
std::size_t bytes_of(const std::vector<TokenLogprob>& logprobs) {
  return 16 + logprobs.size() * sizeof(TokenLogprob);
}

}  // namespace

Answer::Answer(ApiRequest request, const ServedModel& model, const std::string& id,
               std::int64_t created)
    : request_(std::make_shared<const ApiRequest>(std::move(request))),
      num_open_(request_->num_choices()),
      model_(model),
      form_(
          make_answer_form({.request = request_, .model = &model, .id = id, .created = created})) {
  choices_.reserve(static_cast<std::size_t>(num_open_));
  for (std::int32_t i = 0; i < num_open_; ++i) choices_.emplace_back(*model.tokenizer, *request_);
}

bool Answer::on_token(std::int32_t index, TokenId id, const std::vector<TokenLogprob>& logprobs,
                      std::int32_t num_cached_tokens, bool is_stop) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  if (has_ended(choice)) return false;
  const std::string text = choice.source.push(id, is_stop);
  choice.text += text;
  choice.tokens.push_back({id, static_cast<std::uint32_t>(text.size())});
  if (choice.source.num_tokens() <= num_reasoning(choice)) choice.reasoning_bytes += text.size();
  if (const SamplingParams& sampling = request_->sampling; sampling.num_logprobs >= 0) {
    const auto seed = sampling.seed + static_cast<std::uint64_t>(index);
    choice.logprobs.resize(choice.tokens.size());
    choice.logprobs.back() = model_.computes || !logprobs.empty()
                                 ? logprobs
                                 : simulated_logprobs(model_, seed, choice.source.num_tokens(), id,
                                                      sampling.num_logprobs);
    choice.logprob_bytes += bytes_of(choice.logprobs.back());
  }
  choice.num_cached_tokens = num_cached_tokens;
  if (!choice.source.is_stopped()) return false;
  end(choice, "stop");
  return true;
}

void Answer::on_end(std::int32_t index, EndReason reason) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  if (has_ended(choice)) return;
  const std::string rest = choice.source.finish();
  // Held-back text is added to the last unwritten token. If that was written, the text becomes a
  // separate event.
  if (!rest.empty() && !has_event(choice)) choice.tokens.push_back({});
  if (!rest.empty()) choice.tokens.back().num_bytes += static_cast<std::uint32_t>(rest.size());
  choice.text += rest;
  end(choice, choice.source.is_stopped() ? "stop" : finish_reason_of(reason));
}

void Answer::end(Choice& choice, std::string_view reason) {
  choice.end = {
      .reason = reason, .stop = choice.source.stop(), .num_tokens = choice.source.num_tokens()};
  --num_open_;
}

std::int32_t Answer::num_completion_tokens() const {
  std::int32_t sum = 0;
  for (const Choice& choice : choices_) sum += choice.source.num_tokens();
  return sum;
}

std::size_t Answer::num_unsent_bytes() const {
  std::size_t sum = form_->num_held_bytes();
  for (const Choice& choice : choices_) {
    sum += choice.tokens.capacity() * sizeof(Token) + choice.text.capacity();
    sum += choice.logprobs.capacity() * sizeof choice.logprobs.front() + choice.logprob_bytes;
  }
  return sum;
}

std::int32_t Answer::num_reasoning(const Choice& choice) const {
  const auto index = static_cast<std::size_t>(&choice - choices_.data());
  return index < request_->reasoning_tokens.size() ? request_->reasoning_tokens[index] : 0;
}

AnswerUsage Answer::usage(std::int32_t num_tokens) const {
  AnswerUsage usage{.num_prompt_tokens = request_->num_prompt_tokens, .num_tokens = num_tokens};
  for (std::size_t i = 0; i < choices_.size(); i += static_cast<std::size_t>(request_->n)) {
    usage.num_cached_tokens += choices_[i].num_cached_tokens;
  }
  for (const Choice& choice : choices_) {
    usage.num_reasoning_tokens += std::min(choice.source.num_tokens(), num_reasoning(choice));
  }
  return usage;
}

// ---- a stream ----

bool Answer::has_event(const Choice& choice) {
  const bool has_token = choice.next_token < choice.tokens.size();
  return has_token || (has_ended(choice) && !choice.is_written);
}

bool Answer::has_events() const { return std::any_of(choices_.begin(), choices_.end(), has_event); }

// The next token. Valid until tokens come or are forgotten.
AnswerToken Answer::read_token(Choice& choice) const {
  const std::size_t at = choice.next_token++;
  const Token token = choice.tokens[at];
  AnswerToken view{.id = token.id,
                   .text = std::string_view(choice.text).substr(choice.next_byte, token.num_bytes)};
  if (at < choice.logprobs.size()) view.logprobs = choice.logprobs[at];
  choice.next_byte += token.num_bytes;
  view.num_cached_tokens = choice.num_cached_tokens;
  if (view.is_token()) view.is_reasoning = choice.num_read++ < num_reasoning(choice);
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

// Returns false if the choice has nothing to write.
bool Answer::write_next(std::int32_t index, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  if (!has_event(choice)) return false;
  forget_written(choice);
  if (choice.tokens.empty()) choice.tokens.push_back({});  // to say why the answer ends
  const AnswerToken token = read_token(choice);
  num_written_tokens_ += token.is_token() ? 1 : 0;
  choice.is_written = has_ended(choice) && choice.next_token == choice.tokens.size();
  form_->write_token(index, token, choice.is_written ? &choice.end : nullptr,
                     usage(num_written_tokens_), out);
  return true;
}

void Answer::write_events(std::string& out, std::size_t most_bytes) {
  if (is_closed_) return;
  for (bool has_written = true; has_written && out.size() < most_bytes;) {
    has_written = false;
    for (std::int32_t i = 0; i < request_->num_choices(); ++i) {
      has_written = write_next(i, out) || has_written;
    }
  }
  for (Choice& choice : choices_) forget_written(choice);
  if (!is_done() || has_events()) return;
  form_->write_end(usage(num_completion_tokens()), out);
  is_closed_ = true;
}

void Answer::write_error(int status, std::string_view message, std::string& out) {
  if (is_closed_) return;
  form_->write_error(status, message, out);
  is_closed_ = true;
}

// ---- a complete body ----

std::optional<std::string> Answer::body(std::size_t most_bytes) {
  std::vector<AnswerChoice> choices;
  for (Choice& choice : choices_) {
    AnswerChoice& complete = choices.emplace_back();
    const std::string_view text = choice.text;
    complete.reasoning = text.substr(0, choice.reasoning_bytes);
    complete.text = text.substr(choice.reasoning_bytes);
    complete.end = choice.end;
    while (request_->shows_tokens() && choice.next_token < choice.tokens.size()) {
      complete.tokens.push_back(read_token(choice));
    }
  }
  return form_->body(choices, usage(num_completion_tokens()), most_bytes);
}

}  // namespace metronome
