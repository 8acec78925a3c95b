// SPDX-License-Identifier: Apache-2.0
// Each field of a request acts, is ignored, or is refused. One table has the
// fields of all APIs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "serve/server/api_request.h"

namespace metronome {

// The facts, beside its API, on which the fate of a field depends.
struct FieldUse {
  // The request is a chat for a model whose folder has a chat template, which honours tools,
  // tool_choice, documents and continue_final_message.
  bool has_template = false;
  bool computes = true;  // false: answers are simulated, and may have any form
};

// Throws ApiError for the first field that the server would have to ignore although it may change
// the answer. Each field of the body is one of these:
//   acts       the reader of the API reads it.
//   ignored    it has no effect on an answer (user, metadata, ...).
//   refused    known to OpenAI, vLLM, SGLang or llama.cpp, but not supported here: null, an empty
//              value and values that ask for nothing are accepted.
//   another's  acts for another endpoint only: refused, unless it is null or empty.
//   unknown    refused, with the nearest name. Null is accepted.
void refuse_ignored_fields(ApiKind kind, const Json& body, const FieldUse& use = {});

// Whether the reader of the API reads the field, or ignores it, somewhere.
bool is_read_by(ApiKind kind, std::string_view name);

// Refuses fields of an object that has few of them: throws ApiError for the first that does not
// act, unless it is a hint, null, false or empty. Its name in the message begins with `prefix`.
void refuse_fields_beside(const Json& object, std::span<const std::string_view> honoured,
                          bool has_template = false, const std::string& prefix = {});

}  // namespace metronome
