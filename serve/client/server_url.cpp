// SPDX-License-Identifier: Apache-2.0
#include "serve/client/server_url.h"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>

#include "core/base/command_errors.h"
#include "core/base/names.h"

namespace metronome {
namespace {

constexpr std::string_view kAllowed = "allowed: [http://]HOST[:PORT][/PREFIX]";

[[noreturn]] void fail(std::string_view url, const std::string& what) {
  throw UsageError("URL: '" + std::string(url) + "' " + what);
}

// Whether a path or host can be written into a request unchanged.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    constexpr std::string_view kBad = "\"<>\\^`{|}?#@";
    return c > ' ' && c < '\x7f' && kBad.find(c) == kBad.npos;
  });
}

std::uint16_t parse_port(std::string_view url, std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) {
    fail(url, "has no port from 1 to 65535 after its colon; " + std::string(kAllowed));
  }
  return port;
}

// Splits "host:port" or "[address]:port".
void parse_authority(std::string_view url, std::string_view text, ServerUrl& server) {
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == text.npos) fail(url, "has no ']' after its address; " + std::string(kAllowed));
    server.host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
  } else {
    const std::size_t colon = std::min(text.find(':'), text.size());
    server.host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (!rest.empty() && rest.front() != ':') fail(url, "is not a URL; " + std::string(kAllowed));
  if (!rest.empty()) server.port = parse_port(url, rest.substr(1));
  if (server.host.empty()) fail(url, "has no host; " + std::string(kAllowed));
}

}  // namespace

std::string ServerUrl::authority() const {
  const bool is_v6 = host.find(':') != host.npos;
  return fmt::format("{}:{}", is_v6 ? "[" + host + "]" : host, port);
}

std::string ServerUrl::text() const { return "http://" + authority() + prefix; }

ServerUrl parse_server_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  const std::string scheme = lower_ascii(text.substr(0, text.find("://") + 3));
  if (scheme == "https://") {
    fail(text,
         "needs TLS, but this client only supports plain HTTP; allowed: http://, of the server "
         "itself or of a tunnel that terminates TLS (ssh -L 8000:localhost:8000 HOST, or socat "
         "TCP-LISTEN:8000,fork OPENSSL:HOST:443)");
  }
  // HOST:PORT alone is a server, too.
  const bool has_scheme = text.find("://") != text.npos;
  if (has_scheme ? scheme != kScheme : text.find(':') == text.npos)
    fail(text, "is not a URL; " + std::string(kAllowed));
  const std::string_view rest = has_scheme ? text.substr(kScheme.size()) : text;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  if (!is_plain(rest))
    fail(text, "has characters that are not allowed in a URL; " + std::string(kAllowed));
  ServerUrl server;
  parse_authority(text, rest.substr(0, slash), server);
  std::string_view prefix = rest.substr(slash);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  for (const std::string_view path : {"/chat/completions", "/completions", "/v1"}) {
    if (prefix.ends_with(path)) prefix.remove_suffix(path.size());
  }
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  server.prefix = prefix;
  return server;
}

}  // namespace metronome
