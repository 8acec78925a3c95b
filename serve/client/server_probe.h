// Questions to a server before and after a load: one request, one answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "serve/client/server_url.h"

namespace metronome {

// A numeric address that a connection was made to.
struct ServerAddress {
  std::string ip;
  std::uint16_t port = 0;
};

// The first address of the server that takes connections. Throws std::runtime_error, in one line.
// `poll` is called now and then; what it throws ends the attempt.
ServerAddress reach_server(const ServerUrl& url, TimeNs timeout_ns,
                           const std::function<void()>& poll);

struct HttpAnswer {
  std::int32_t status = 0;
  std::string body;
};

// "GET /v1/models". `headers` are whole lines ("Authorization: Bearer ..."). Throws
// std::runtime_error for a server that does not answer in time, or not in HTTP.
HttpAnswer http_get(const ServerUrl& url, const ServerAddress& address, std::string_view path,
                    const std::vector<std::string>& headers, TimeNs timeout_ns,
                    const std::function<void()>& poll);

// The id of the first model that GET /v1/models lists, or nothing where the answer has none.
std::string first_model(const HttpAnswer& answer);
// What GET /version says, or nothing.
std::string server_version(const HttpAnswer& answer);

}  // namespace metronome
