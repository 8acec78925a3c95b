// The answer to one request of a client: takes tokens, makes the bytes of its body.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json_text.h"
#include "core/engine/event.h"
#include "core/engine/sampling.h"
#include "core/text/detokenizer.h"
#include "core/text/stop_matcher.h"
#include "serve/server/api_request.h"

namespace metronome {

class Answer {
 public:
  // `id` is unique. `created` is in seconds since 1970. `model` outlives the answer.
  Answer(ApiRequest request, const ServedModel& model, const std::string& id, std::int64_t created);

  const ApiRequest& request() const { return request_; }

  // Adds a token to a choice. Returns true if a stop string is complete: the choice takes no more
  // tokens, and the engine may stop it.
  bool on_token(std::int32_t choice, TokenId token, const std::vector<TokenLogprob>& logprobs,
                std::int32_t num_cached_tokens);
  // The engine has ended a choice. No effect if a stop string ended it before.
  void on_end(std::int32_t choice, EndReason reason);

  // For a stream: appends one event "data: ...\n\n" for each token since the last call. After the
  // last choice's end, appends usage and [DONE]. Write tokens of one step together, so that the
  // last event carries the finish reason.
  void write_events(std::string& out);
  // For a stream that fails: appends an error event and ends the stream.
  void write_error(int status, std::string_view message, std::string& out);
  // Without a stream: the complete body, once is_done().
  std::string body();

  bool is_done() const { return num_open_ == 0; }
  bool has_ended(std::int32_t choice) const {
    return choices_[static_cast<std::size_t>(choice)].finish_reason != nullptr;
  }
  std::int32_t num_completion_tokens() const;

 private:
  struct Token {
    TokenId id{};
    std::string text = {};  // the text that the token completed
    std::vector<TokenLogprob> logprobs = {};
    bool is_token = true;  // false: an event with only the rest of the text
  };
  struct Choice {
    Choice(const Tokenizer& tokenizer, const ApiRequest& request)
        : detokenizer(tokenizer, request.skips_special_tokens),
          stops(request.stops, request.includes_stop) {}

    Detokenizer detokenizer;
    StopMatcher stops;
    std::vector<Token> tokens;  // not written yet; all tokens without a stream
    std::int32_t num_tokens = 0;
    std::int32_t num_cached_tokens = 0;
    std::int64_t num_characters = 0;  // written
    const char* finish_reason = nullptr;
    bool has_begun = false;   // the first event was written
    bool is_written = false;  // the last event was written
  };

  void end(Choice& choice, const char* reason);
  void write_choice(std::int32_t index, std::string& out);
  void write_event(std::int32_t index, const Token& token, const char* finish_reason,
                   std::string& out);
  void add_logprobs(Choice& choice, const std::vector<Token>& tokens);
  void add_chat_logprob(TokenId id, float logprob, const std::vector<TokenLogprob>* top);
  void add_usage(std::int32_t num_tokens);
  void add_header(const char* object);
  std::string token_text(TokenId id) const;

  ApiRequest request_;
  const ServedModel& model_;
  std::string id_;
  std::int64_t created_;
  std::vector<Choice> choices_;
  std::int32_t num_open_;
  std::int32_t num_written_tokens_ = 0;  // of all choices
  bool is_closed_ = false;               // [DONE] was written
  JsonText json_;                        // scratch
  std::string scratch_;
};

}  // namespace metronome
