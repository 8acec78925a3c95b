// SPDX-License-Identifier: Apache-2.0
#include "serve/server/access.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;
namespace {

HttpRequest request_of(const std::string& host, const std::string& target = "/health",
                       std::vector<std::pair<std::string, std::string>> fields = {}) {
  HttpRequest request;
  request.method = "POST";
  request.target = target;
  request.host = host;
  request.fields = std::move(fields);
  return request;
}

int status_of(const Access& access, const HttpRequest& request) {
  const auto refusal = access.refusal(request);
  return refusal ? refusal->status : 200;
}

}  // namespace

TEST_CASE("a key opens what computes; other paths need none", "[serve][access]") {
  const Access access({.api_key = "s3cret"});
  const auto status = [&](const std::string& target, const std::string& sent) {
    return status_of(access, request_of("localhost", target, {{"authorization", sent}}));
  };
  for (const std::string target : {"/v1/models", "/v1/completions", "/generate", "/v1", "/v1x"}) {
    INFO(target);
    CHECK(status_of(access, request_of("localhost", target)) == 401);
    CHECK(status(target, "Bearer s3cret") == 200);
    CHECK(status(target, "bearer s3cret") == 200);
    for (const std::string wrong : {"", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret ",
                                    "Bearer S3cret", "Basic s3cret", "s3cret", "Bearer  s3cret"}) {
      CHECK(status(target, wrong) == 401);
    }
  }
  for (const std::string target : {"/health", "/metrics", "/version", "/tokenize", "/ping"}) {
    CHECK(status_of(access, request_of("localhost", target)) == 200);
  }
  HttpRequest preflight = request_of("localhost", "/v1/models");
  preflight.method = "OPTIONS";
  CHECK(status_of(access, preflight) == 200);
  CHECK(status_of(Access(), request_of("localhost", "/v1/models")) == 200);
}

TEST_CASE("only the server's own names are served", "[serve][access]") {
  const Access access({.allowed_hosts = {"Gpu1.lab", "*.example.com"}, .listens_on = "box.lan"});
  for (const std::string host :
       {"localhost", "LOCALHOST:8000", "a.localhost", "127.0.0.1", "127.0.0.1:80", "10.1.2.3:8000",
        "[::1]", "[::1]:8000", "[fe80::1]:9", "gpu1.lab:8000", "gpu1.lab.", "box.lan:1",
        "a.example.com", ""}) {
    INFO(host);
    CHECK(status_of(access, request_of(host)) == 200);
  }
  for (const std::string host :
       {"evil.com", "evil.com:8000", "localhost.evil.com", "127.0.0.1.evil", "xlocalhost",
        "example.com", "gpu1.lab.evil.com", "[evil]", "1.2", "evil.com:127.0.0.1", "[::1]evil"}) {
    INFO(host);
    CHECK(status_of(access, request_of(host)) == 403);
  }
  CHECK(status_of(Access({.allowed_hosts = {"*"}}), request_of("evil.com")) == 200);
}

TEST_CASE("entries that no request can match are told", "[serve][access]") {
  for (const std::string host : {"*", "gpu1.lab", "GPU-1", "*.example.com", "10.1.2.3", "[::1]",
                                 "::1", "xn--bcher-kva.example", "my_host"}) {
    INFO(host);
    CHECK(host_fault(host).empty());
  }
  for (const std::string host : {"gpu1.lab:8000", "https://gpu1.lab", "gpu1.lab/", "*gpu1", "*.*",
                                 "a b", "gpu1.lab.", ".lab", "a..b",
                                 "b\xc3\xbc"
                                 "cher.example",
                                 "a\nb", "*."}) {
    INFO(host);
    CHECK(host_fault(host).find("; allowed: ") != std::string::npos);
  }
  for (const std::string origin :
       {"*", "null", "https://chat.example", "http://localhost:3000", "HTTPS://Chat.Example",
        "https://[::1]:8443", "chrome-extension://abcdef", "tauri://localhost",
        "http://10.0.0.1:8080"}) {
    INFO(origin);
    CHECK(origin_fault(origin).empty());
  }
  for (const std::string origin : {"javascript:x",
                                   "javascript://x",
                                   "chat.example",
                                   "https://chat.example/",
                                   "https://",
                                   "https://chat.example/app",
                                   "https://chat.example:443",
                                   "http://chat.example:80",
                                   "https://*.chat.example",
                                   "https://chat.example:0",
                                   "https://chat.example:99999",
                                   "https://chat.example:x",
                                   "https:chat.example",
                                   "file:///home",
                                   "data:text/html",
                                   "https://user@chat.example",
                                   "https://chat example",
                                   "https://b\xc3\xbc"
                                   "cher.example",
                                   "://x",
                                   "https://[::1",
                                   "https://chat.example?x"}) {
    INFO(origin);
    CHECK(origin_fault(origin).find("; allowed: ") != std::string::npos);
  }
  CHECK(key_fault("").empty());
  CHECK(key_fault("s3cret with blanks").empty());
  for (const std::string key : {" x", "x ", "a\nb", "a\x7f", "\t"}) {
    CHECK(key_fault(key).find("; allowed: ") != std::string::npos);
  }
  CHECK_FALSE(key_fault(std::string(5000, 'k')).empty());
}

TEST_CASE("web pages may call if their origin is allowed", "[serve][access]") {
  const auto of = [](const std::string& origin) {
    return request_of("localhost:8000", "/v1/models", {{"origin", origin}});
  };
  const Access none;
  for (const std::string origin : {"https://evil.com", "null", "http://localhost", "file://",
                                   "http://localhost:8000.evil.com", "localhost:8000"}) {
    INFO(origin);
    CHECK(status_of(none, of(origin)) == 403);
    CHECK(none.cors_lines(of(origin)).empty());
  }
  CHECK(status_of(none, of("http://localhost:8000")) == 200);   // its own pages
  CHECK(status_of(none, request_of("localhost:8000")) == 200);  // no page
  CHECK(none.cors_lines(request_of("localhost:8000")).empty());
  const Access some({.allowed_origins = {"https://Chat.example"}});
  CHECK(status_of(some, of("https://chat.example")) == 200);
  CHECK(status_of(some, of("http://chat.example")) == 403);
  CHECK(some.cors_lines(of("https://chat.example")) ==
        "Access-Control-Allow-Origin: https://chat.example\r\nVary: Origin\r\n");
  const Access all({.allowed_origins = {"*"}});
  CHECK(status_of(all, of("null")) == 200);
  CHECK(all.cors_lines(of("null")) == "Access-Control-Allow-Origin: *\r\n");
}

}  // namespace TEST_FILE
