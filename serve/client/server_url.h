// SPDX-License-Identifier: Apache-2.0
// The location of a server with OpenAI's endpoints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace metronome {

struct ServerUrl {
  std::string host;  // without the brackets of an IPv6 address
  std::uint16_t port = 80;
  std::string prefix;  // of every path: "" or "/proxy", without a trailing slash

  // "host:port" as in the Host header; an IPv6 address is in brackets.
  std::string authority() const;
  // "http://host:port/prefix".
  std::string text() const;
};

// Reads "http://HOST[:PORT][/PREFIX]"; "http://" may be left out. The prefix may end in /v1, as
// base URLs of OpenAI's client library do, or in the path of an endpoint below it. Throws
// UsageError.
ServerUrl parse_server_url(std::string_view text);

}  // namespace metronome
