// SPDX-License-Identifier: Apache-2.0
// Converts the texts and conversations of requests to prompts: token ids of the model.
#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>
#include <vector>

#include "models/text/tokenizer.h"
#include "serve/server/api_fields.h"
#include "serve/server/api_request.h"

namespace metronome {

// The most tokens of a prompt that are read. If they are more than the context, the client is told
// how many. Also the most messages of a chat, and parts of a message, of which each has tokens.
std::size_t max_prompt_tokens(const ServedModel& model);
EncodingLimits prompt_limits(const ServedModel& model, const std::atomic<bool>* has_left);

// The ids of a text. Throws ApiError for `field` if the text has too many, or one that the model
// lacks.
std::vector<TokenId> encode_text(const ServedModel& model, const EncodingLimits& limits,
                                 const char* field, std::string_view text, bool adds_special);

// The field `prompt`: a text, ids, or a list of either.
std::vector<std::vector<TokenId>> completion_prompts(const ApiFields& fields,
                                                     const ServedModel& model,
                                                     const EncodingLimits& limits);

// The field `messages`, written by the chat template of the model's folder, else in the format of
// the tokenizer's family. `images` gets the images.
std::vector<TokenId> chat_prompt(const ApiFields& fields, const ServedModel& model,
                                 const EncodingLimits& limits, std::vector<PromptImage>& images);

}  // namespace metronome
