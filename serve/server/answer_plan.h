// SPDX-License-Identifier: Apache-2.0
// Plans the answers of a request beside their text: their lengths, a call of a tool, JSON of a
// schema, reasoning. A simulated answer that has a form gets its tokens here.
#pragma once

#include "serve/server/api_fields.h"
#include "serve/server/api_request.h"

namespace metronome {

// Reads min_tokens, tools, tool_choice, response_format, the fields for guided answers of vLLM and
// SGLang, and reasoning_effort, and sets what `request` has per answer. The request has its
// prompts, max_tokens and sampling. The choices depend on the model's seed and the request's.
// Throws ApiError.
void plan_answers(const ApiFields& fields, const ServedModel& model, ApiRequest& request);

}  // namespace metronome
