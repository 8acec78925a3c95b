// What clients ask for: bodies of OpenAI's completions and chat completions and of /generate, as
// requests for the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "core/engine/sampling.h"

namespace metronome {

class Tokenizer;

// What is served.
struct ServedModel {
  std::string name;  // as clients call it
  std::string root;  // what the scenario calls it
  std::shared_ptr<const Tokenizer> tokenizer;
  std::int64_t vocab_size = 0;
  std::int32_t max_model_len = 0;
  bool computes = true;            // false: simulated, it has no logits
  bool orders_by_priority = true;  // priorities mean something to the scheduler
  std::int32_t max_choices = 128;  // of one request: prompts times `n`
  std::uint64_t seed = 0;          // of requests that bring none
  // The lengths that simulated answers have when nothing else ends them; at least one.
  std::vector<std::int32_t> spoken_lengths;
};

// What is wrong with a request, for the client.
struct ApiError : std::runtime_error {
  ApiError(int http_status, const std::string& message, std::string parameter = {})
      : std::runtime_error(message), status(http_status), param(std::move(parameter)) {}

  int status;         // 400, 404, 413, ...
  std::string param;  // the field it is about; empty: none
};
// {"error": {"message", "type", "param", "code"}} as vLLM's servers have it: type by the status,
// code the status.
std::string error_json(int status, std::string_view message, std::string_view param = {});

enum class ApiKind : std::uint8_t { Completion, Chat, Generate };

struct ApiRequest {
  ApiKind kind = ApiKind::Completion;
  std::vector<std::vector<TokenId>> prompts;  // at least one, none empty
  std::int32_t n = 1;                         // answers to each prompt
  std::int32_t max_tokens = 1;
  SamplingParams sampling;  // answer i draws with the seed + i
  std::int32_t priority = 0;
  std::vector<std::string> stops;
  bool includes_stop = false;
  bool skips_special_tokens = true;
  bool is_stream = false;
  bool wants_usage = false;                 // of a stream: at its end
  bool wants_continuous_usage = false;      // and with every event
  std::vector<std::int32_t> spoken_tokens;  // of each answer, see LiveRequest

  std::int32_t num_choices() const { return static_cast<std::int32_t>(prompts.size()) * n; }
};

// Reads a body. `number` counts requests: what a request leaves open is drawn from it and the
// model's seed. Throws ApiError. May be called from several threads at once.
ApiRequest parse_generation(ApiKind kind, std::string_view body, const ServedModel& model,
                            std::uint64_t number);

// {"prompt": text} or {"messages": [...]}, as vLLM's /tokenize takes them.
std::vector<TokenId> parse_tokenize(std::string_view body, const ServedModel& model);
// {"tokens": [ids]}
std::vector<TokenId> parse_detokenize(std::string_view body, const ServedModel& model);

}  // namespace metronome
