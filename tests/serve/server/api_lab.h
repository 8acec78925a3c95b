// SPDX-License-Identifier: Apache-2.0
// Requests that bodies are read as, or the reasons why bodies are refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/server/api_request.h"
#include "tests/serve/server/serve_lab.h"

namespace metronome::testing {

using Prompts = std::vector<std::vector<TokenId>>;

inline std::vector<TokenId> bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(TokenId{static_cast<unsigned char>(c)});
  return ids;
}

inline ApiRequest parse(ApiKind kind, const std::string& body,
                        const ServedModel& model = byte_model()) {
  return parse_generation(kind, body, model, 0);
}

inline std::string refusal(ApiKind kind, const std::string& body,
                           const ServedModel& model = byte_model()) {
  try {
    parse(kind, body, model);
  } catch (const ApiError& error) {
    return std::to_string(error.status) + " [" + error.param + "] " + error.what();
  }
  return "accepted";
}
inline std::string refusal_of_field(const std::string& field,
                                    const ServedModel& model = byte_model()) {
  return refusal(ApiKind::Completion, R"({"prompt": "a", )" + field + "}", model);
}

}  // namespace metronome::testing
