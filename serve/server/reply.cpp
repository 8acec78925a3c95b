// SPDX-License-Identifier: Apache-2.0
#include "serve/server/reply.h"

#include "core/base/json.h"
#include "serve/server/api_request.h"

namespace metronome {

Reply error_reply(int status, std::string_view message, std::string_view param) {
  Reply reply{.status = status, .body = error_json(status, message, param)};
  if (status == 429 || status == 503) reply.extra_header = "Retry-After: 1";
  if (status == 401) reply.extra_header = "WWW-Authenticate: Bearer";
  return reply;
}

Reply messages_error_reply(int status, std::string_view message, std::string_view param) {
  Json body = Json::parse(error_json(status, message, param));
  body["type"] = "error";
  body["error"]["type"] = status == 404 ? "not_found_error" : "invalid_request_error";
  return {.status = status, .body = body.dump()};
}

}  // namespace metronome
