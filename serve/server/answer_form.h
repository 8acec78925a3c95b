// SPDX-License-Identifier: Apache-2.0
// Writes an answer in the form of its API: the events of its stream, and its complete body. One
// class for each API; Answer keeps the tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_text.h"
#include "core/engine/sampling.h"
#include "serve/server/api_request.h"

namespace metronome {

struct AnswerToken {
  static constexpr TokenId kRest{-1};

  bool is_token() const { return id != kRest; }

  TokenId id = kRest;          // kRest: no token, an event with only the rest of the text
  std::string_view text = {};  // what the token completed
  std::span<const TokenLogprob> logprobs = {};
  bool is_reasoning = false;
  std::int32_t num_cached_tokens = 0;  // of the prompt
};

// The end of a choice, and its reason.
struct AnswerEnd {
  std::string_view reason;               // "stop", "length" or "abort"
  std::optional<std::string> stop = {};  // the stop string that ended it
  std::int32_t num_tokens = 0;           // of the choice
};

struct AnswerUsage {
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_tokens = 0;         // of the answers
  std::int32_t num_cached_tokens = 0;  // of the prompts
  std::int32_t num_reasoning_tokens = 0;
};

// A choice that is complete.
struct AnswerChoice {
  std::string_view reasoning;
  std::string_view text;
  std::vector<AnswerToken> tokens;  // if the request asks for something of them
  AnswerEnd end;
};

struct AnswerFacts {
  std::shared_ptr<const ApiRequest> request;
  const ServedModel* model = nullptr;
  std::string id;            // unique
  std::int64_t created = 0;  // in seconds since 1970
};

class AnswerForm {
 public:
  explicit AnswerForm(AnswerFacts facts)
      : facts_(std::move(facts)), request_(*facts_.request), model_(*facts_.model) {}
  AnswerForm(const AnswerForm&) = delete;
  AnswerForm& operator=(const AnswerForm&) = delete;
  virtual ~AnswerForm() = default;

  // Appends the event of a token of a choice. `end` is null if tokens follow; `usage` is that of
  // what is written, with this token.
  virtual void write_token(std::int32_t choice, const AnswerToken& token, const AnswerEnd* end,
                           const AnswerUsage& usage, std::string& out) = 0;
  // Appends what follows the last token of the last choice.
  virtual void write_end(const AnswerUsage& usage, std::string& out) = 0;
  // Appends the event of a stream that fails, and ends the stream.
  virtual void write_error(int status, std::string_view message, std::string& out);
  // The body of an answer that is not streamed. nullopt if it would have more than `most_bytes`,
  // which are exceeded for a moment by little.
  virtual std::optional<std::string> body(std::span<const AnswerChoice> choices,
                                          const AnswerUsage& usage, std::size_t most_bytes) = 0;
  // Bytes of what a stream repeats at its end.
  virtual std::size_t num_held_bytes() const { return 0; }

 protected:
  // Begins an object of OpenAI's API in json_.
  void add_header(std::string_view id_prefix, const char* object);
  void add_usage(const AnswerUsage& usage);
  // Appends "data: ...\n\n" with the text of json_.
  void write_data(std::string& out) const;
  std::string token_text(TokenId id) const;

  AnswerFacts facts_;
  const ApiRequest& request_;
  const ServedModel& model_;
  JsonText json_;  // scratch
};

std::unique_ptr<AnswerForm> make_openai_form(AnswerFacts facts);    // completions and chats
std::unique_ptr<AnswerForm> make_generate_form(AnswerFacts facts);  // /generate
std::unique_ptr<AnswerForm> make_native_form(AnswerFacts facts);    // /generate, as SGLang has it
std::unique_ptr<AnswerForm> make_responses_form(AnswerFacts facts);
std::unique_ptr<AnswerForm> make_messages_form(AnswerFacts facts);
std::unique_ptr<AnswerForm> make_embeddings_form(AnswerFacts facts);
// The form of the request's API.
std::unique_ptr<AnswerForm> make_answer_form(AnswerFacts facts);

// The number of characters in a UTF-8 text.
std::int64_t num_characters(std::string_view text);

}  // namespace metronome
