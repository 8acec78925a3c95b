// SPDX-License-Identifier: Apache-2.0
// Requests of APIs beside OpenAI's completions and chats, as bodies of those: one reader reads all.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "serve/server/api_request.h"

namespace metronome {

// A body in the words of another API, and what its fields were called.
struct TranslatedBody {
  Json body;
  // The beginning of a field's name in `body`, and that in the client's body. The first that fits.
  std::vector<std::pair<std::string_view, std::string_view>> names;
  // See ApiRequest.
  std::shared_ptr<const Json> repeated = {};
  std::int32_t num_dimensions = 0;
  bool is_base64 = false;
  std::int32_t first_prompt_logprob = 0;
};

// {"text" or "input_ids", "sampling_params"}, as SGLang's /generate takes it, as a completion.
// Throws ApiError.
TranslatedBody completion_of_generate(const Json& body, const ServedModel& model);
// OpenAI's /v1/responses as a chat. Throws ApiError.
TranslatedBody chat_of_response(const Json& body, const ServedModel& model);

// Anthropic's /v1/messages as a chat. `is_counted`: only its tokens are, so that it may lack
// max_tokens. Throws ApiError.
TranslatedBody chat_of_messages(const Json& body, const ServedModel& model,
                                bool is_counted = false);

// OpenAI's /v1/embeddings as completions of one token, which nobody sees. A model that computes
// has none. Throws ApiError.
TranslatedBody completion_of_embeddings(const Json& body, const ServedModel& model);

// Whether a body of /generate has that form.
bool is_native_generate(const Json& body);

}  // namespace metronome
