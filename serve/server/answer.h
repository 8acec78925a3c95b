// The answer to one request of a client: tokens in, the bytes of its body out.
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
  // `id` is unique; `created` is seconds since 1970; `model` outlives the answer.
  Answer(ApiRequest request, const ServedModel& model, const std::string& id, std::int64_t created);

  const ApiRequest& request() const { return request_; }

  // A token of a choice. True when a stop string is complete: the choice takes no more, and the
  // engine need not go on with it.
  bool on_token(std::int32_t choice, TokenId token, const std::vector<TokenLogprob>& logprobs,
                std::int32_t num_cached_tokens);
  // The engine has ended a choice. Nothing happens to one that a stop string ended before.
  void on_end(std::int32_t choice, EndReason reason);

  // Of a stream: appends the events of what has come since the last call, one for each token, each
  // "data: ...\n\n"; behind those of the last choice that ends, usage and [DONE]. Tokens of one
  // step should be written together, so that the last one carries why it ended.
  void write_events(std::string& out);
  // Of a stream that fails in the middle: what is left to say. Ends it.
  void write_error(int status, std::string_view message, std::string& out);
  // Not of a stream: the whole body, once is_done().
  std::string body();

  bool is_done() const { return num_open_ == 0; }
  bool has_ended(std::int32_t choice) const {
    return choices_[static_cast<std::size_t>(choice)].finish_reason != nullptr;
  }
  std::int32_t num_prompt_tokens() const;
  std::int32_t num_completion_tokens() const;

 private:
  struct Token {
    TokenId id{};
    std::string text = {};  // what became certain with it
    std::vector<TokenLogprob> logprobs = {};
    bool is_token = true;  // false: an event that only says what was left to say
  };
  struct Choice {
    Choice(const Tokenizer& tokenizer, const ApiRequest& request)
        : detokenizer(tokenizer, request.skips_special_tokens),
          stops(request.stops, request.includes_stop) {}

    Detokenizer detokenizer;
    StopMatcher stops;
    std::vector<Token> tokens;  // not written yet; all of them where there is no stream
    std::int32_t num_tokens = 0;
    std::int32_t num_cached_tokens = 0;
    std::int64_t num_characters = 0;  // written
    const char* finish_reason = nullptr;
    bool has_begun = false;   // the first event is written
    bool is_written = false;  // and the last
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
  bool is_closed_ = false;               // [DONE] is written
  JsonText json_;                        // scratch
  std::string scratch_;
};

}  // namespace metronome
