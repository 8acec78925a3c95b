// Where a server of OpenAI's endpoints is, as people write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace metronome {

struct ServerUrl {
  std::string host;  // without the brackets of an IPv6 address
  std::uint16_t port = 80;
  std::string prefix;  // of every path: "" or "/proxy", without a slash at its end

  // "host:port" as the Host header has it; an IPv6 address in brackets.
  std::string authority() const;
  // "http://host:port/prefix".
  std::string text() const;
};

// Reads "http://HOST[:PORT][/PREFIX]"; the prefix may end in /v1, which is what clients of OpenAI's
// library call the base. Throws UsageError.
ServerUrl parse_server_url(std::string_view text);

}  // namespace metronome
