// SPDX-License-Identifier: Apache-2.0
// Which fields of a request the server honours, takes as hints, or refuses.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "serve/server/api_request.h"

namespace metronome {

// Throws ApiError for the first field that the server would have to ignore although it may change
// the answer. Each field of the body is one of these:
//   honoured   parse_generation() reads it.
//   a hint     it has no effect on an answer (user, metadata, ...).
//   known      to OpenAI, vLLM, SGLang or llama.cpp, but not supported: null, an empty value and
//              values that ask for nothing are accepted.
//   another's  honoured by another endpoint only: refused, unless it is null or empty.
//   unknown    refused, with the nearest name. Null is accepted.
// `has_template`: the request is a chat for a model whose folder has a chat template, which honours
// tools, tool_choice, documents and continue_final_message.
void refuse_ignored_fields(ApiKind kind, const Json& body, bool has_template = false);

// Refuses fields of an object that has few of them: throws ApiError for the first that is not
// honoured, unless it is a hint, null, false or empty. Its name in the message begins with
// `prefix`.
void refuse_fields_beside(const Json& object, std::span<const std::string_view> honoured,
                          bool has_template = false, const std::string& prefix = {});

}  // namespace metronome
