// SPDX-License-Identifier: Apache-2.0
// Single requests to a server before and after a load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "serve/client/server_url.h"

namespace metronome {

// The numeric address of a successful connection.
struct ServerAddress {
  std::string ip;
  std::uint16_t port = 0;
};

// The first address of the server that accepts connections. Throws std::runtime_error with one
// line. `poll` is called repeatedly; an exception from it ends the attempt.
ServerAddress reach_server(const ServerUrl& url, TimeNs timeout_ns,
                           const std::function<void()>& poll);

struct HttpAnswer {
  std::int32_t status = 0;
  std::string body;
  std::string content_type;  // empty: not said
};

// A longer body is an error.
constexpr std::size_t kMostAnswerBytes = std::size_t{8} << 20;

// Sends GET for `path`, such as "/v1/models". `headers` are whole lines ("Authorization: Bearer
// ..."). Throws std::runtime_error, with one line, if the server does not answer completely in
// time, or not in HTTP.
HttpAnswer http_get(const ServerUrl& url, const ServerAddress& address, std::string_view path,
                    const std::vector<std::string>& headers, TimeNs timeout_ns,
                    const std::function<void()>& poll);

// The id of the first model in the answer to GET /v1/models, or empty.
std::string first_model(const HttpAnswer& answer);
// The version in the answer to GET /version, or empty.
std::string server_version(const HttpAnswer& answer);

}  // namespace metronome
