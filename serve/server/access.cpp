#include "serve/server/access.h"

#include <arpa/inet.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
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

}  // namespace

Access::Access(AccessRules rules) : rules_(std::move(rules)) {
  for (std::string& host : rules_.allowed_hosts) host = lower_ascii(host);
  for (std::string& origin : rules_.allowed_origins) origin = lower_ascii(origin);
  rules_.allowed_hosts.push_back("localhost");
  rules_.allowed_hosts.push_back("*.localhost");
  rules_.allowed_hosts.push_back(machine_name());
  if (!rules_.listens_on.empty()) rules_.allowed_hosts.push_back(name_of(rules_.listens_on));
}

bool Access::has_key(const HttpRequest& request) const {
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
