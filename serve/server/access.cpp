// SPDX-License-Identifier: Apache-2.0
#include "serve/server/access.h"

#include <arpa/inet.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/names.h"

namespace metronome {
namespace {

bool has(const std::vector<std::string>& list, std::string_view entry) {
  return std::find(list.begin(), list.end(), entry) != list.end();
}

// The name of a Host without its port, in lower case.
std::string name_of(std::string_view host) {
  const std::size_t bracket = host.rfind(']');
  const std::size_t colon = host.rfind(':');
  const bool has_port =
      colon != host.npos && (bracket == host.npos ? host.find(':') == colon : bracket < colon);
  std::string name = lower_ascii(has_port ? host.substr(0, colon) : host);
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  if (name.size() > 1 && name.ends_with('.')) name.pop_back();
  return name;
}

bool is_address(const std::string& name) {
  in6_addr address{};
  return inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

std::string machine_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof name - 1) == 0 ? lower_ascii(name) : "localhost";
}

// Takes as long whatever the first difference is.
bool are_equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

// Labels of letters, digits, '-' and '_', with dots between. Browsers send others as Punycode.
bool is_host_name(std::string_view name) {
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && !name.starts_with('.') && name.find("..") == name.npos &&
         std::all_of(name.begin(), name.end(), is_part);
}

// The number of a port; 0: it is none.
int port_of(std::string_view text) {
  int port = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool is_number = error == std::errc() && rest == text.data() + text.size();
  return is_number && !text.starts_with('0') && port <= 65535 ? std::max(port, 0) : 0;
}

}  // namespace

std::string host_fault(std::string_view entry) {
  constexpr const char* kAllowed =
      "; allowed: a name as gpu1.lab without scheme and port, *.NAME, or *";
  const std::string name = lower_ascii(entry);
  if (name == "*" || is_address(name_of(name))) return {};
  const std::string_view below = name.starts_with("*.") ? std::string_view(name).substr(2) : name;
  if (is_host_name(below) && !below.ends_with('.')) return {};
  return std::string("can match no Host of a request") + kAllowed;
}

// Origins are written as browsers do (RFC 6454, 6.2): without a path, and without the port that
// the scheme has anyway.
std::string origin_fault(std::string_view entry) {
  constexpr const char* kAllowed = "; allowed: SCHEME://HOST or SCHEME://HOST:PORT, null, or *";
  constexpr std::string_view kOpaque[] = {"about", "blob", "data", "file", "javascript"};
  const std::string origin = lower_ascii(entry);
  if (origin == "*" || origin == "null") return {};
  const auto fault = [&](const char* what) { return what + std::string(kAllowed); };
  const std::size_t end = origin.find("://");
  if (end == origin.npos) return fault("is no origin of a web page");
  const std::string_view scheme = std::string_view(origin).substr(0, end);
  const std::string_view rest = std::string_view(origin).substr(end + 3);
  const bool is_scheme =
      !scheme.empty() &&
      scheme.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-.") == scheme.npos;
  if (!is_scheme ||
      std::find(std::begin(kOpaque), std::end(kOpaque), scheme) != std::end(kOpaque)) {
    return fault("has a scheme whose pages have no origin");
  }
  if (rest.find_first_of("/?#") != rest.npos) return fault("has a path, which no origin has");
  const std::size_t bracket = rest.rfind(']');
  const std::size_t colon = rest.find(':', bracket == rest.npos ? 0 : bracket);
  const std::string_view host = rest.substr(0, colon);
  const bool is_host = host.starts_with('[') ? is_address(name_of(host)) : is_host_name(host);
  if (!is_host) return fault("has no host that a browser sends");
  if (colon == rest.npos) return {};
  const int port = port_of(rest.substr(colon + 1));
  if (port == 0) return fault("has no valid port");
  const bool is_default = (scheme == "http" && port == 80) || (scheme == "https" && port == 443);
  return is_default ? fault("has the default port of its scheme, which browsers leave out") : "";
}

std::string key_fault(std::string_view key) {
  constexpr std::size_t kMost = 4096;  // a header has room for it
  if (key.size() > kMost) return "is longer than any header; allowed: up to 4096 bytes";
  const bool has_controls = std::any_of(key.begin(), key.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (has_controls || key.starts_with(' ') || key.ends_with(' ')) {
    return "can be in no header; allowed: no control characters, no blanks around it";
  }
  return {};
}

Access::Access(AccessRules rules) : rules_(std::move(rules)) {
  for (std::string& host : rules_.allowed_hosts) host = lower_ascii(host);
  for (std::string& origin : rules_.allowed_origins) origin = lower_ascii(origin);
  rules_.allowed_hosts.push_back("localhost");
  rules_.allowed_hosts.push_back("*.localhost");
  rules_.allowed_hosts.push_back(machine_name());
  if (!rules_.listens_on.empty()) rules_.allowed_hosts.push_back(name_of(rules_.listens_on));
}

bool Access::has_key(const HttpRequest& request) const {
  // Anthropic's clients have a header of their own.
  if (are_equal(request.field("x-api-key"), rules_.api_key)) return true;
  const std::string_view sent = request.field("authorization");
  const std::size_t blank = std::min(sent.find(' '), sent.size());
  return lower_ascii(sent.substr(0, blank)) == "bearer" && blank < sent.size() &&
         are_equal(sent.substr(blank + 1), rules_.api_key);
}

bool Access::is_own_host(std::string_view host) const {
  const std::string name = name_of(host);
  // No page can have a name that is an address, so there is nothing to rebind.
  if (host.empty() || is_address(name)) return true;
  return std::any_of(rules_.allowed_hosts.begin(), rules_.allowed_hosts.end(),
                     [&name](std::string_view allowed) {
                       if (!allowed.starts_with('*')) return name == allowed;
                       return name.ends_with(allowed.substr(1));
                     });
}

bool Access::is_allowed_origin(const HttpRequest& request) const {
  const std::string origin = lower_ascii(request.field("origin"));
  if (origin.empty() || has(rules_.allowed_origins, "*") || has(rules_.allowed_origins, origin)) {
    return true;
  }
  const std::string host = lower_ascii(request.host);  // a page of this server's own
  return !host.empty() && (origin == "http://" + host || origin == "https://" + host);
}

std::optional<AccessRefusal> Access::refusal(const HttpRequest& request) const {
  if (!is_own_host(request.host)) {
    return AccessRefusal{403, "the host '" + name_of(request.host) +
                                  "' is no name of this server; allowed: addresses, localhost and "
                                  "the names of --allowed-hosts"};
  }
  if (!is_allowed_origin(request)) {
    return AccessRefusal{403, "pages of " + std::string(request.field("origin")) +
                                  " may not call this server; allowed: those of "
                                  "--allowed-origins"};
  }
  const bool needs_key = request.method != "OPTIONS" && (request.target.starts_with("/v1") ||
                                                         request.target.starts_with("/generate"));
  if (!rules_.api_key.empty() && needs_key && !has_key(request)) {
    return AccessRefusal{401,
                         "the API key is missing or wrong; allowed: 'Authorization: Bearer "
                         "KEY' with the server's --api-key"};
  }
  return std::nullopt;
}

std::string Access::cors_lines(const HttpRequest& request) const {
  const std::string_view origin = request.field("origin");
  if (has(rules_.allowed_origins, "*")) return "Access-Control-Allow-Origin: *\r\n";
  if (origin.empty() || !is_allowed_origin(request)) return {};
  return "Access-Control-Allow-Origin: " + std::string(origin) + "\r\nVary: Origin\r\n";
}

}  // namespace metronome
