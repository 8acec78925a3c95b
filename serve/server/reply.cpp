// SPDX-License-Identifier: Apache-2.0
#include "serve/server/reply.h"

#include <optional>

#include "core/base/json.h"
#include "serve/server/api_request.h"

namespace metronome {
namespace {

// The names of Anthropic's API.
std::string_view messages_error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

Reply error_reply(int status, std::string_view message, std::string_view param) {
  Reply reply{.status = status, .body = error_json(status, message, param)};
  if (status == 429 || status == 503) reply.extra_header = "Retry-After: 1";
  if (status == 401) reply.extra_header = "WWW-Authenticate: Bearer";
  return reply;
}

Reply in_form_of(std::string_view target, Reply reply) {
  constexpr std::string_view kMessagesPath = "/v1/messages";
  if (reply.status < 400 || !target.starts_with(kMessagesPath)) return reply;
  std::optional<Json> body = Json::try_parse(reply.body);
  if (!body || !body->contains("error")) return reply;
  Json error = {{"type", "error"}};
  error["error"] = (*body)["error"];
  error["error"]["type"] = messages_error_type(reply.status);
  reply.body = error.dump();
  return reply;
}

}  // namespace metronome
