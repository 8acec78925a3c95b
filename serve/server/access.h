// SPDX-License-Identifier: Apache-2.0
// Decides who may call the server: clients with a key, by the server's own names, not any web page.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/server/request_reader.h"

namespace metronome {

struct AccessRules {
  std::string api_key = {};  // empty: nobody needs one
  // Names of the server, in addition to addresses, localhost, `listens_on` and this machine's name.
  // "*.name" stands for all names below it, "*" for all.
  std::vector<std::string> allowed_hosts = {};
  std::vector<std::string> allowed_origins = {};  // of web pages: "https://name:port"; "*": all
  std::string listens_on = {};
};

// Why no request can ever match an entry of AccessRules, and what is allowed instead: "has a path;
// allowed: ...". Empty: one can.
std::string host_fault(std::string_view entry);
std::string origin_fault(std::string_view entry);
std::string key_fault(std::string_view key);

// A refusal of a request, by its status and reason.
struct AccessRefusal {
  int status = 403;
  std::string message;
};

class Access {
 public:
  explicit Access(AccessRules rules = {});

  // nullopt: the request may go on.
  //
  // 401: paths below /v1, and /generate, need "Authorization: Bearer KEY", or Anthropic's
  // "X-Api-Key: KEY". As in vLLM other paths do not, nor do the questions that browsers ask first
  // (OPTIONS).
  //
  // 403: a Host that is no name of the server. A web page whose own name leads to this machine (DNS
  // rebinding) would read answers as if they were its own.
  //
  // 403: an Origin that is not allowed. A web page may send some requests without asking first.
  std::optional<AccessRefusal> refusal(const HttpRequest& request) const;

  // Header lines with which a browser lets the page see the response; empty: it shall not.
  std::string cors_lines(const HttpRequest& request) const;

 private:
  bool has_key(const HttpRequest& request) const;
  bool is_own_host(std::string_view host) const;
  bool is_allowed_origin(const HttpRequest& request) const;

  AccessRules rules_;
};

}  // namespace metronome
