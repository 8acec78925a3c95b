// SPDX-License-Identifier: Apache-2.0
#include "serve/server/routes.h"

#include <fmt/core.h>

#include "core/base/names.h"
#include "models/text/jinja/operators.h"

namespace metronome {
namespace {

struct Row {
  std::string_view method;
  std::string_view path;
  Endpoint endpoint;
};
// In the order of the page.
constexpr Row kRows[] = {{"POST", "/v1/completions", Endpoint::Completions},
                         {"POST", "/v1/chat/completions", Endpoint::ChatCompletions},
                         {"POST", "/v1/responses", Endpoint::Responses},
                         {"POST", "/v1/messages", Endpoint::Messages},
                         {"POST", "/v1/messages/count_tokens", Endpoint::CountTokens},
                         {"POST", "/generate", Endpoint::Generate},
                         {"POST", "/tokenize", Endpoint::Tokenize},
                         {"POST", "/detokenize", Endpoint::Detokenize},
                         {"POST", "/reset_prefix_cache", Endpoint::ResetPrefixCache},
                         {"GET", "/", Endpoint::Index},
                         {"GET", "/v1/models", Endpoint::Models},
                         {"GET", "/health", Endpoint::Health},
                         {"GET", "/ping", Endpoint::Health},
                         {"GET", "/version", Endpoint::Version},
                         {"GET", "/metrics", Endpoint::Metrics},
                         {"POST", "/v1/embeddings", Endpoint::Embeddings},
                         {"GET", "/model_info", Endpoint::ModelInfo},
                         {"GET", "/get_model_info", Endpoint::ModelInfo},
                         {"GET", "/server_info", Endpoint::ServerInfo},
                         {"GET", "/get_server_info", Endpoint::ServerInfo},
                         {"GET", "/health_generate", Endpoint::Health},
                         {"POST", "/flush_cache", Endpoint::FlushCache},
                         {"GET", "/flush_cache", Endpoint::FlushCache},
                         {"POST", "/abort_request", Endpoint::AbortRequest},
                         {"GET", "/get_load", Endpoint::GetLoad},
                         {"GET", "/v1/loads", Endpoint::Loads}};
constexpr Row kModelRow = {"GET", "/v1/models/", Endpoint::Models};  // and a name

// nullptr: the path does not exist. A path with several methods has the row of the request's.
const Row* row_of(std::string_view method, std::string_view path) {
  const Row* found = nullptr;
  for (const Row& row : kRows) {
    if (row.path != path) continue;
    if (row.method == method) return &row;
    if (found == nullptr) found = &row;
  }
  if (found != nullptr) return found;
  return path.starts_with(kModelRow.path) ? &kModelRow : nullptr;
}

// The answer to a browser's preflight request, sent before JSON for another host.
Reply preflight_reply() {
  return {.status = 204,
          .body = "",
          .content_type = "text/plain",
          .extra_header =
              "Access-Control-Allow-Methods: GET, POST\r\n"
              "Access-Control-Allow-Headers: *, Authorization\r\n"
              "Access-Control-Allow-Private-Network: true\r\n"
              "Access-Control-Max-Age: 600"};
}

}  // namespace

Route route_of(std::string_view method, std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  if (method == "OPTIONS" && path == "*") return {.reply = preflight_reply()};
  const std::string what = std::string(method) + " " + std::string(path);
  const Row* row = row_of(method == "HEAD" ? "GET" : method, path);
  if (row == nullptr) return {.reply = error_reply(404, what + " is not served here")};
  if (method == "OPTIONS") return {.reply = preflight_reply()};
  const bool is_get = row->method == "GET";
  if (method != row->method && !(method == "HEAD" && is_get)) {
    Reply reply = error_reply(405, what + " is not allowed");
    reply.extra_header = is_get ? "Allow: GET, HEAD" : "Allow: POST";
    return {.reply = std::move(reply)};
  }
  return {.endpoint = row->endpoint,
          .model = row == &kModelRow ? path.substr(kModelRow.path.size()) : ""};
}

Reply index_reply(const std::string& model_name) {
  const std::string name = jinja::escaped_html(printable(model_name));
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>Metronome: {0}</title>\n"
      "<h1>Metronome</h1>\n<p>This server answers clients of OpenAI's API for the model "
      "<b>{0}</b>.</p>\n<ul>\n",
      name);
  for (const auto& [method, path, endpoint] : kRows) {
    // A link that empties the cache is none to click on.
    if (endpoint == Endpoint::Index || endpoint == Endpoint::FlushCache) continue;
    const std::string text(path);
    // Links are relative, so that they work behind a prefix.
    page += method == "GET" ? "<li>GET <a href=\"" + text.substr(1) + "\">" + text + "</a></li>\n"
                            : "<li>" + std::string(method) + " " + text + "</li>\n";
  }
  page += "</ul>\n</html>\n";
  return {.body = std::move(page), .content_type = "text/html; charset=utf-8"};
}

}  // namespace metronome
