// SPDX-License-Identifier: Apache-2.0
// Converts clients' request bodies to requests for the engine: OpenAI's completions and chat
// completions, and /generate.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "core/engine/request_input.h"
#include "core/engine/sampling.h"
#include "core/model/generation_config.h"
#include "models/text/stop_matcher.h"

namespace metronome {

class FolderChat;
class Json;
struct ImageProcessor;
class Tokenizer;

// The served model.
struct ServedModel {
  std::string name;  // the name for clients
  std::string root;  // its name in the scenario
  std::shared_ptr<const Tokenizer> tokenizer;
  // The chat template of the model's folder; null: that of the tokenizer's family
  // (models/text/chat_template.h).
  std::shared_ptr<const FolderChat> chat;
  // Of a model with a vision tower; null: it takes text only.
  std::shared_ptr<const ImageProcessor> images;
  std::int64_t vocab_size = 0;
  std::int32_t max_model_len = 0;
  std::int64_t hidden_dim = 1024;  // of embeddings
  bool computes = true;            // false: simulated, without logits
  bool takes_penalties = true;     // and logit_bias
  SamplingDefaults sampling;       // of requests that say nothing else
  bool orders_by_priority = true;  // the scheduler uses priorities
  std::int32_t max_choices = 128;  // per request: prompts times `n`
  std::uint64_t seed = 0;          // for requests without one
  // The lengths of simulated answers that nothing else ends; at least one entry.
  std::vector<std::int32_t> answer_lengths;
};

// An error in a request, reported to the client.
struct ApiError : std::runtime_error {
  ApiError(int http_status, const std::string& message, std::string parameter = {})
      : std::runtime_error(message), status(http_status), param(std::move(parameter)) {}

  int status;         // 400, 404, 413, ...
  std::string param;  // the field in error; empty: none
};
// {"error": {"message", "type", "param", "code"}} as in vLLM's servers: the type depends on the
// status, the code is the status.
std::string error_json(int status, std::string_view message, std::string_view param = {});

// Limits on the lists and texts of a request, beside those of the model's context.
constexpr std::size_t kMaxStops = 64;
constexpr std::size_t kMaxStopBytes = 4096;  // of all stop strings
constexpr std::size_t kMaxStopTokenIds = 128;
constexpr std::size_t kMaxLogitBiases = 1024;  // as in vLLM

// Whose form a request and its answer have. NativeSampling is an object in requests of Native.
enum class ApiKind : std::uint8_t {
  Completion,
  Chat,
  Generate,
  Native,  // SGLang's /generate
  NativeSampling,
  Responses,
  Messages,
  Embeddings
};
// Has messages.
constexpr bool is_chat(ApiKind kind) {
  return kind == ApiKind::Chat || kind == ApiKind::Responses || kind == ApiKind::Messages;
}

struct ApiRequest {
  ApiKind kind = ApiKind::Completion;
  std::vector<std::vector<TokenId>> prompts;  // at least one; none is empty
  std::vector<PromptImage> images;            // of a chat's prompt
  std::int32_t n = 1;                         // answers per prompt
  std::int32_t max_tokens = 1;
  SamplingParams sampling;  // answer i uses the seed + i
  std::int32_t priority = 0;
  std::string rid;                          // by which the client may abort it; empty: none
  std::int32_t num_prompt_tokens = 0;       // of all prompts
  std::vector<std::int32_t> prompt_tokens;  // of each
  bool is_list = false;                     // the prompts came as a list, which may have one
  // Shown with the answers (`echo`, `return_token_ids`, `prompt_logprobs`); else empty.
  std::vector<std::vector<TokenId>> shown_prompts;
  bool echoes = false;        // a completion begins with its prompt
  bool hides_answer = false;  // max_tokens is 0, and the answer's one token is not shown
  bool returns_token_ids = false;
  // Of the prompts' tokens, as SamplingParams::num_logprobs of the answers'.
  std::int32_t num_prompt_logprobs = -1;
  std::int32_t first_prompt_logprob = 0;     // the token of a prompt with which they begin
  std::int32_t num_dimensions = 0;           // of embeddings
  bool is_base64 = false;                    // embeddings are not written as numbers
  std::shared_ptr<const StopStrings> stops;  // null: none
  bool includes_stop = false;
  bool skips_special_tokens = true;
  bool is_stream = false;
  bool wants_usage = false;                 // of a stream: usage at its end
  bool wants_continuous_usage = false;      // and usage with every event
  std::int32_t min_tokens = 0;              // before them nothing ends an answer
  std::vector<std::int32_t> answer_tokens;  // per answer, see LiveRequest
  // Per answer: its tokens, if it is simulated and has a form. Null: plausible text.
  std::vector<std::shared_ptr<const std::vector<TokenId>>> scripts;
  // Per answer: so many of its first tokens are reasoning.
  std::vector<std::int32_t> reasoning_tokens;
  bool shows_reasoning = true;
  std::shared_ptr<const Json> repeated;  // fields of a request that its answer has; null: none
  // The answer is a call of this function, and its text the arguments; empty: it is a text.
  std::string function;
  bool is_function_named = false;  // by the request, which left no choice of tools

  // Whether an answer that is sent whole has something of each token.
  bool shows_tokens() const {
    return sampling.num_logprobs >= 0 || returns_token_ids || kind == ApiKind::Native;
  }
  std::int32_t num_choices() const { return static_cast<std::int32_t>(prompts.size()) * n; }
};

// SGLang's /abort_request.
struct AbortedRequests {
  std::string rid;      // the beginning of theirs; empty: none has it
  bool is_all = false;  // whatever theirs are
};

// Throws ApiError.
AbortedRequests parse_abort(std::string_view body);

// Reads a body. `number` counts requests. Random choices that the request leaves open depend on it
// and on the model's seed. Throws ApiError, and EncodingCancelled soon after `has_left` has become
// true. Thread-safe.
ApiRequest parse_generation(ApiKind kind, std::string_view body, const ServedModel& model,
                            std::uint64_t number, const std::atomic<bool>* has_left = nullptr);

// {"prompt": text} or {"messages": [...]}, as in vLLM's /tokenize. The text may have
// kTokenizedContexts times as many tokens as the model's context.
constexpr std::int32_t kTokenizedContexts = 16;
std::vector<TokenId> parse_tokenize(std::string_view body, const ServedModel& model,
                                    const std::atomic<bool>* has_left = nullptr);
// A body of /v1/messages, which may lack max_tokens; as many as of /tokenize.
std::vector<TokenId> parse_counted(std::string_view body, const ServedModel& model,
                                   const std::atomic<bool>* has_left = nullptr);
// {"tokens": [ids]}; as many as /tokenize may give.
std::vector<TokenId> parse_detokenize(std::string_view body, const ServedModel& model);

}  // namespace metronome
