// SPDX-License-Identifier: Apache-2.0
// The answer to one request of a client: takes tokens, makes the bytes of its body.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/event.h"
#include "core/engine/sampling.h"
#include "serve/server/answer_form.h"
#include "serve/server/answer_text.h"
#include "serve/server/api_request.h"

namespace metronome {

class Answer {
 public:
  // `id` is unique. `created` is in seconds since 1970. `model` outlives the answer.
  Answer(ApiRequest request, const ServedModel& model, const std::string& id, std::int64_t created);

  const ApiRequest& request() const { return *request_; }

  // Adds a token to a choice. Returns true if a stop string is complete: the choice takes no more
  // tokens, and the engine may stop it. `is_stop`: see AnswerText::push().
  bool on_token(std::int32_t choice, TokenId token, const std::vector<TokenLogprob>& logprobs,
                std::int32_t num_cached_tokens, bool is_stop = false);
  // The engine has ended a choice. No effect if a stop string ended it before.
  void on_end(std::int32_t choice, EndReason reason);

  // For a stream: appends one event "data: ...\n\n" for each token that is not written yet, one of
  // each choice in turn, until `out` has `most_bytes` or somewhat more. After the last token of the
  // last choice, appends what its API has at the end. Write tokens of one step together, so that
  // the last event carries the finish reason.
  void write_events(std::string& out, std::size_t most_bytes = SIZE_MAX);
  // Whether there is something to write: the reader is slower than the engine.
  bool has_events() const;
  // For a stream that fails: appends an error event and ends the stream.
  void write_error(int status, std::string_view message, std::string& out);
  // Without a stream: the complete body, once is_done(). Nothing if it would have more than
  // `most_bytes`, which are exceeded for a moment by little.
  std::optional<std::string> body(std::size_t most_bytes = SIZE_MAX);

  bool is_done() const { return num_open_ == 0; }
  // Whether the end of the stream was written.
  bool is_closed() const { return is_closed_; }
  bool has_ended(std::int32_t choice) const {
    return !choices_[static_cast<std::size_t>(choice)].end.reason.empty();
  }
  std::int32_t num_completion_tokens() const;
  // Bytes of the buffers of tokens that are not written yet.
  std::size_t num_unsent_bytes() const;

 private:
  // A token, without what it has only while it is written. A slow reader may leave many.
  struct Token {
    TokenId id = AnswerToken::kRest;
    std::uint32_t num_bytes = 0;  // of the text that the token completed
  };
  struct Choice {
    Choice(const Tokenizer& tokenizer, const ApiRequest& request) : source(tokenizer, request) {}

    AnswerText source;  // of `text`
    // Tokens that are not written yet, or were written a short while ago, and their texts. Without
    // a stream: all.
    std::vector<Token> tokens;
    std::string text;
    std::vector<std::vector<TokenLogprob>> logprobs;  // of the tokens; empty: nobody asked
    std::size_t logprob_bytes = 0;                    // of their elements
    std::size_t next_token = 0, next_byte = 0;        // the first that are not written
    std::int32_t num_cached_tokens = 0;
    std::int32_t num_read = 0;        // tokens
    std::size_t reasoning_bytes = 0;  // of the text, at its begin
    AnswerEnd end;
    bool is_written = false;  // the last event was written
  };

  void end(Choice& choice, std::string_view reason);
  static bool has_ended(const Choice& choice) { return !choice.end.reason.empty(); }
  static bool has_event(const Choice& choice);
  AnswerToken read_token(Choice& choice) const;
  std::int32_t num_reasoning(const Choice& choice) const;
  static void forget_written(Choice& choice);
  bool write_next(std::int32_t index, std::string& out);
  AnswerUsage usage(std::int32_t num_tokens) const;

  std::shared_ptr<const ApiRequest> request_;
  std::vector<Choice> choices_;
  std::int32_t num_open_;
  std::int32_t num_written_tokens_ = 0;  // of all choices
  bool is_closed_ = false;
  const ServedModel& model_;
  std::unique_ptr<AnswerForm> form_;
};

}  // namespace metronome
