// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <ctime>

#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/serve/server/http_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("a connection carries many requests, one after the other", "[serve][http]") {
  HttpBench bench;
  Wire wire(bench);
  for (int i = 1; i <= 3; ++i) {
    wire.send(completion(R"("max_tokens": 5)"));
    REQUIRE(wire.read_until("total_tokens", i));
  }
  // All at once: they are answered in order.
  wire.received.clear();
  wire.send(completion(R"("max_tokens": 1)") + "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n" +
            completion(R"("max_tokens": 2)") + "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  REQUIRE(wire.read_until("HTTP/1.1 200 OK", 4));
  const std::size_t first = wire.received.find("\"completion_tokens\":1,");
  const std::size_t version = wire.received.find("{\"version\":\"1\"}");
  const std::size_t second = wire.received.find("\"completion_tokens\":2,");
  CHECK(first < version);
  CHECK(version < second);
  CHECK(second != std::string::npos);
  CHECK_FALSE(wire.has_ended);
}

TEST_CASE("line breaks between requests are skipped", "[serve][http]") {
  HttpBench bench;
  Wire wire(bench);
  for (int i = 1; i <= 3; ++i) {
    wire.send("\r\n\n" + completion(R"("max_tokens": 2)") + "\r\n");
    REQUIRE(wire.read_until("total_tokens", i));
  }
}

TEST_CASE("a client that has sent more, and left, is noticed", "[serve][http]") {
  HttpBench bench({}, 1);
  Wire wire(bench);
  wire.send(completion(R"("max_tokens": 90000)") + "\r\n");
  REQUIRE(bench.wait_until([&] { return !bench.service->is_idle(); }));
  wire.close();
  CHECK(bench.wait_idle());
}

TEST_CASE("a stream is chunked, and the connection goes on after it", "[serve][http]") {
  HttpBench bench;
  Wire wire(bench);
  wire.send(completion(R"("max_tokens": 20, "stream": true)"));
  REQUIRE(wire.read_until("\r\n0\r\n\r\n"));
  CHECK(wire.received.find("Transfer-Encoding: chunked") != std::string::npos);
  CHECK(wire.received.find("Content-Type: text/event-stream") != std::string::npos);
  const std::size_t begin = wire.received.find("\r\n\r\n") + 4;
  std::string_view rest(wire.received);
  rest.remove_prefix(begin);
  std::string stream;
  while (true) {
    const std::size_t end = rest.find("\r\n");
    const std::size_t size = std::stoul(std::string(rest.substr(0, end)), nullptr, 16);
    if (size == 0) break;
    stream += rest.substr(end + 2, size);
    rest.remove_prefix(end + 2 + size + 2);
  }
  CHECK(events_of(stream).size() == 21);
  wire.received.clear();
  wire.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(wire.read_until("200 OK"));
}

TEST_CASE("responses have a date, and a length where they may", "[serve][http]") {
  HttpBench bench;
  const auto head_of = [&](const std::string& request) {
    Wire wire(bench);
    wire.send(request);
    REQUIRE(wire.read_until("\r\n\r\n"));
    return wire.received.substr(0, wire.received.find("\r\n\r\n") + 2);
  };
  for (const std::string& request :
       {std::string("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        std::string("GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        std::string("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        completion(R"("max_tokens": 2, "stream": true)")}) {
    const std::string head = head_of(request);
    INFO(head);
    const std::size_t at = head.find("\r\nDate: ");
    REQUIRE(at != std::string::npos);
    const std::string date = head.substr(at + 8, head.find("\r\n", at + 8) - at - 8);
    std::tm time{};
    const char* end = strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time);
    REQUIRE((end != nullptr && *end == '\0'));
    CHECK(date.size() == 29);
    CHECK(std::abs(std::difftime(timegm(&time), std::time(nullptr))) < 60);
    const bool has_length = head.find("Content-Length: ") != std::string::npos;
    const bool may_have_length =
        !head.starts_with("HTTP/1.1 204") && head.find("chunked") == std::string::npos;
    CHECK(has_length == may_have_length);
  }
}

TEST_CASE("a page of an allowed origin may see that its key is wrong", "[serve][http]") {
  AccessRules rules;
  rules.api_key = "s3cret";
  rules.allowed_origins = {"https://chat.example"};
  HttpBench bench({}, 1000, rules);
  const std::string allowed = "Origin: https://chat.example\r\n";
  const std::string line = "Access-Control-Allow-Origin: https://chat.example";
  Wire wrong_key(bench);
  wrong_key.send(post("{}", allowed + "Authorization: Bearer x\r\n"));
  REQUIRE(wrong_key.read_to_end());
  CHECK(status_of(wrong_key) == 401);
  CHECK(wrong_key.received.find(line) != std::string::npos);
  // A later refusal on a connection has no line of an earlier response.
  Wire other(bench);
  other.send("GET /health HTTP/1.1\r\nHost: localhost\r\n" + allowed + "\r\n");
  REQUIRE(other.read_until(line));
  other.send("GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.com\r\n\r\n");
  REQUIRE(other.read_to_end());
  CHECK(other.received.find("HTTP/1.1 403") != std::string::npos);
  CHECK(occurrences(other.received, "Access-Control-Allow-Origin") == 1);
}

TEST_CASE("a client that sends all before it reads gets the refusal", "[serve][http]") {
  HttpLimits limits;
  limits.linger_timeout = std::chrono::milliseconds(20'000);
  HttpBench bench(limits);
  const std::string body(40'000'000, 'x');
  Wire whole(bench);
  whole.send(post(body));
  REQUIRE(whole.read_to_end());
  CHECK(status_of(whole) == 413);
  CHECK(whole.received.find("the body is too large; allowed: ") != std::string::npos);
  CHECK(whole.received.find("--max-body-bytes") != std::string::npos);
  Wire chunked(bench);
  chunked.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 40; ++i) chunked.send("f4240\r\n" + body.substr(0, 1'000'000) + "\r\n");
  chunked.send("0\r\n\r\n");
  REQUIRE(chunked.read_to_end());
  CHECK(status_of(chunked) == 413);
  Wire forbidden(bench);  // other refusals of a body, too
  forbidden.send(
      "POST /v1/completions HTTP/1.1\r\nHost: evil.com\r\nContent-Length: 8000000\r\n\r\n" +
      body.substr(0, 8'000'000));
  REQUIRE(forbidden.read_to_end());
  CHECK(status_of(forbidden) == 403);
  CHECK(bench.wait_until([&] { return bench.server.held_bytes() == 0; }));
}

TEST_CASE("bytes after a refusal are read for a while, and up to a limit", "[serve][http]") {
  HttpLimits limits;
  limits.linger_timeout = std::chrono::milliseconds(200);
  limits.max_lingering_bytes = 1'000'000;
  HttpBench bench(limits);
  Wire slow(bench);
  slow.send("POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n");
  REQUIRE(slow.read_until("the body is too large"));
  CHECK(bench.wait_until([&] { return !bench.server.has_connections(); }));
  Wire endless(bench);
  const std::string part(1 << 20, 'x');
  endless.send("POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n");
  for (int i = 0; i < 90; ++i) endless.send(part);
  CHECK(bench.wait_until([&] { return !bench.server.has_connections(); }));
}

// By default the server reads on for as long as bytes come.
TEST_CASE("a client that sends a very large body gets the refusal", "[serve][http]") {
  HttpLimits limits;
  limits.linger_timeout = std::chrono::milliseconds(2'000);
  HttpBench bench(limits);
  constexpr std::size_t kNumParts = 200;
  const std::string part(1 << 20, 'x');
  Wire wire(bench);
  wire.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
            std::to_string(kNumParts * part.size()) + "\r\n\r\n");
  for (std::size_t i = 0; i < kNumParts; ++i) wire.send(part);
  REQUIRE(wire.read_to_end());
  CHECK(status_of(wire) == 413);
}

TEST_CASE("HTTP/1.0 gets a stream that ends with the connection", "[serve][http]") {
  HttpBench bench;
  Wire wire(bench);
  const std::string body = R"({"prompt": "Hi", "max_tokens": 3, "stream": true})";
  wire.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
            "\r\n\r\n" + body);
  REQUIRE(wire.read_to_end());
  CHECK(wire.received.starts_with("HTTP/1.0 200 OK\r\n"));
  CHECK(wire.received.find("chunked") == std::string::npos);
  CHECK(wire.received.ends_with("data: [DONE]\n\n"));
  Wire old(bench);
  old.send("GET /health HTTP/1.0\r\n\r\n");
  REQUIRE(old.read_to_end());
  CHECK(status_of(old) == 200);
}

TEST_CASE("requests that are not HTTP, or too large, are refused and end the connection",
          "[serve][http]") {
  HttpLimits limits;
  limits.max_header_bytes = 2048;
  limits.max_body_bytes = 5000;
  HttpBench bench(limits);
  const auto refused = [&](const std::string& bytes) {
    Wire wire(bench);
    wire.send(bytes);
    INFO(bytes.substr(0, 80));
    CHECK(wire.read_to_end());
    const std::size_t body = wire.received.find("\r\n\r\n");
    REQUIRE(body != std::string::npos);
    CHECK(Json::parse(wire.received.substr(body + 4))["error"]["code"] == status_of(wire));
    return status_of(wire);
  };
  CHECK(refused("hello\r\n\r\n") == 400);
  CHECK(refused("GET / HTTP/9.9\r\n\r\n") == 400);
  CHECK(refused("POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n") == 400);
  CHECK(refused("POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
                "Content-Length: 4\r\n\r\nabc") == 400);
  CHECK(refused("GET / HTTP/1.1\r\nX: " + std::string(5000, 'x') + "\r\n\r\n") == 431);
  CHECK(refused(post(std::string(5001, ' '))) == 413);
  CHECK(refused("POST /generate HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Length: 99999999999999999999\r\n\r\n") == 400);
  CHECK(refused("POST /generate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                "1770\r\n" +
                std::string(6000, ' ') + "\r\n0\r\n\r\n") == 413);
  Wire chunked(bench);  // within the limits it is a body like others
  chunked.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
      "9\r\n{\"prompt\"\r\n7\r\n: \"abc\"\r\n1\r\n}\r\n0\r\n\r\n");
  REQUIRE(chunked.read_until("\"count\":3"));
}

TEST_CASE("a body with an unknown coding is not taken for the next request", "[serve][http]") {
  HttpBench bench;
  const std::string hidden = "POST /reset_prefix_cache HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (const std::string coding : {"xchunked", "chunked, identity", "gzip, chunked"}) {
    INFO(coding);
    Wire wire(bench);
    wire.send("POST /generate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " + coding +
              "\r\n\r\n" + hidden);
    CHECK(wire.read_to_end());
    CHECK(status_of(wire) == 501);
    CHECK(wire.received.find("HTTP/1.1", 1) == std::string::npos);  // one response
  }
}

TEST_CASE("a client that waits for leave to send its body gets it", "[serve][http]") {
  HttpBench bench;
  Wire wire(bench);
  const std::string body = R"({"prompt": "ab"})";
  wire.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  REQUIRE(wire.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  wire.send(body);
  CHECK(wire.read_until("\"count\":2"));
}

TEST_CASE("who sends too slowly is told, or forgotten", "[serve][http]") {
  // One limit at a time: no other runs out first on a slow machine.
  constexpr std::chrono::milliseconds kShort(200);
  const auto closed = [](const HttpLimits& limits, std::string_view bytes) {
    HttpBench bench(limits);
    Wire wire(bench);
    wire.send(bytes);
    CHECK(wire.read_to_end());
    return wire.received.empty() ? -1 : status_of(wire);
  };
  HttpLimits header, body, idle;
  header.header_timeout = body.body_timeout = idle.idle_timeout = kShort;
  CHECK(closed(header, "GET /hea") == 408);
  CHECK(closed(body, "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{") ==
        408);
  CHECK(closed(idle, "") == -1);
}

TEST_CASE("a client that goes away in the middle ends its request", "[serve][http]") {
  HttpBench bench({}, 1);
  const bool resets = GENERATE(false, true);
  const bool is_stream = GENERATE(false, true);
  INFO((resets ? "reset" : "closed") << (is_stream ? ", a stream" : ", a body"));
  Wire wire(bench);
  wire.send(
      completion(is_stream ? R"("max_tokens": 90000, "stream": true)" : R"("max_tokens": 90000)"));
  if (is_stream) REQUIRE(wire.read_until("data: ", 3));
  REQUIRE(bench.wait_until([&] { return !bench.service->is_idle(); }));
  resets ? wire.reset() : wire.close();
  CHECK(bench.wait_idle());
  CHECK(bench.wait_until([&] { return !bench.server.has_connections(); }));
  CHECK(bench.on_server([&] { return bench.service->metrics().num_clients_left; }) == 1);
}

TEST_CASE("a client that does not read is cut off, and the others notice nothing",
          "[serve][http]") {
  HttpLimits limits;
  limits.max_unread_bytes = 20'000;
  limits.write_timeout = std::chrono::milliseconds(500);
  HttpBench bench(limits);
  Wire deaf(bench, 4096), other(bench);
  deaf.send(completion(R"("max_tokens": 90000, "stream": true)"));
  other.send(completion(R"("max_tokens": 3000, "stream": true)"));
  CHECK(other.read_until("data: [DONE]"));
  CHECK(bench.wait_until([&] { return bench.service->metrics().num_clients_cut == 1; }));
  CHECK(bench.wait_idle());
}

TEST_CASE("a reader that is slower than the engine gets all, and nobody waits for it",
          "[serve][http]") {
  HttpLimits limits;
  limits.max_unread_bytes = 5'000;
  HttpBench bench(limits, 1e6);
  Wire slow(bench, 4096), other(bench);
  slow.send(completion(R"("max_tokens": 12000, "stream": true)"));
  REQUIRE(slow.read_until("data: "));
  other.send(completion(R"("max_tokens": 3000, "stream": true)"));
  CHECK(other.read_until("data: [DONE]"));
  CHECK(slow.read_until("data: [DONE]\n\n\r\n0\r\n\r\n"));
  CHECK(occurrences(slow.received, "data: {") == 12000);
}

TEST_CASE("who may not call is refused before the body comes", "[serve][http]") {
  HttpBench bench({}, 1000, {.api_key = "k", .allowed_origins = {"https://a.example"}});
  const auto status = [&](const std::string& headers) {
    Wire wire(bench);
    wire.send("POST /v1/completions HTTP/1.1\r\n" + headers + "Content-Length: 100000\r\n\r\n");
    CHECK(wire.read_to_end());
    return status_of(wire);
  };
  CHECK(status("Host: localhost\r\n") == 401);
  CHECK(status("Host: evil.com\r\nAuthorization: Bearer k\r\n") == 403);
  CHECK(status("Host: localhost\r\nOrigin: https://b.example\r\nAuthorization: Bearer k\r\n") ==
        403);
  Wire page(bench);
  page.send(post(R"({"prompt": "Hi", "max_tokens": 2, "stream": true})",
                 "Origin: https://a.example\r\nAuthorization: Bearer k\r\n"));
  REQUIRE(page.read_until("data: [DONE]"));
  CHECK(page.received.find("Access-Control-Allow-Origin: https://a.example\r\n") !=
        std::string::npos);
}

TEST_CASE("more connections than allowed are turned away", "[serve][http]") {
  HttpLimits limits;
  limits.max_connections = 3;
  HttpBench bench(limits, 1);
  Wire first(bench), second(bench), third(bench);
  for (Wire* wire : {&first, &second, &third}) {
    wire->send(completion(R"("max_tokens": 90000, "stream": true)"));
    REQUIRE(wire->read_until("data: "));
  }
  Wire fourth(bench);
  CHECK(fourth.read_to_end());
  CHECK(status_of(fourth) == 503);
  CHECK(fourth.received.find("Retry-After: 1") != std::string::npos);
  first.close();
  CHECK(bench.wait_until([&] { return bench.service->metrics().num_connections == 2; }));
  Wire fifth(bench);
  fifth.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(fifth.read_until("200 OK"));
  // It is idle now, so it gives way to the next.
  Wire sixth(bench);
  sixth.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(sixth.read_until("200 OK"));
  CHECK(fifth.read_to_end());
}

TEST_CASE("a client that has all its connections gives up its own", "[serve][http]") {
  HttpLimits limits;
  limits.max_client_connections = 2;
  limits.request_patience = std::chrono::milliseconds(0);
  HttpBench bench(limits, 1);
  Wire busy(bench), slow(bench);
  busy.send(completion(R"("max_tokens": 90000, "stream": true)"));
  REQUIRE(busy.read_until("data: "));
  slow.send("GET /health HTTP/1.1\r\nHos");
  CHECK(bench.wait_until([&] { return bench.service->metrics().num_connections == 2; }));
  Wire next(bench);
  next.send(completion(R"("max_tokens": 90000, "stream": true)"));
  REQUIRE(next.read_until("data: "));
  CHECK(slow.read_to_end());
  Wire last(bench);
  CHECK(last.read_to_end());
  CHECK(status_of(last) == 429);
}

TEST_CASE("a client that connects without end is told why a hundred times, then reset",
          "[serve][http]") {
  HttpLimits limits;
  limits.max_client_connections = 1;
  HttpBench bench(limits, 1);
  Wire busy(bench);
  busy.send(completion(R"("max_tokens": 90000, "stream": true)"));
  REQUIRE(busy.read_until("data: "));
  const auto began = std::chrono::steady_clock::now();
  std::int64_t num_told = 0;
  for (int i = 0; i < 400; ++i) {
    Wire wire(bench);
    CHECK(wire.read_to_end());
    CHECK((wire.received.empty() || status_of(wire) == 429));
    num_told += wire.received.empty() ? 0 : 1;
  }
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  CHECK(num_told >= 100);
  CHECK(num_told <= 101 + elapsed.count() / 10);
  const std::size_t before = busy.received.size();
  REQUIRE(busy.read_some());
  CHECK(busy.received.size() > before);
}

TEST_CASE("bodies that are not read yet have a common budget", "[serve][http]") {
  HttpLimits limits;
  limits.max_held_bytes = 400'000;  // 200,000 for a client
  HttpBench bench(limits, 1);
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 150000\r\n\r\n";
  Wire first(bench), second(bench);
  first.send(head + std::string(140'000, ' '));
  CHECK(bench.wait_until([&] { return bench.server.held_bytes() == 140'000; }));
  second.send(head + std::string(140'000, ' '));
  CHECK(second.read_to_end());
  CHECK(status_of(second) == 429);
  CHECK(bench.wait_until([&] { return bench.server.held_bytes() == 140'000; }));
  first.send(std::string(10'000, ' '));
  CHECK(first.read_until("HTTP/1.1 400"));  // all blanks
  CHECK(bench.wait_until([&] { return bench.server.held_bytes() == 0; }));
}

TEST_CASE("a server that is told to stop lets answers end", "[serve][http]") {
  HttpBench bench({}, 20);
  Wire busy(bench), idle(bench);
  busy.send(completion(R"("max_tokens": 300, "stream": true)"));
  REQUIRE(busy.read_until("data: ", 2));
  idle.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  REQUIRE(idle.read_until("200 OK"));
  bench.on_server([&] {
    bench.service->drain();
    bench.server.stop_accepting();
    return 0;
  });
  CHECK(idle.read_to_end());
  CHECK(busy.read_to_end());
  CHECK(busy.received.find("data: [DONE]") != std::string::npos);
  CHECK(bench.wait_until([&] { return !bench.server.has_connections(); }));
}

TEST_CASE("mutated requests are answered or dropped, and the server goes on", "[serve][http]") {
  HttpLimits limits;
  limits.header_timeout = std::chrono::milliseconds(300);
  limits.body_timeout = std::chrono::milliseconds(300);
  HttpBench bench(limits);
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  INFO("seed " << seed);
  Rng rng(seed, "mutations");
  const std::string valid[] = {
      completion(R"("max_tokens": 3, "stream": true)"),
      completion(R"("max_tokens": 3, "stop": ["a", "b"], "n": 2)"),
      post(R"({"tokens": [1, 2, 3]})", {}, "/detokenize"),
      post(R"({"messages": [{"role": "user", "content": "x"}]})", {}, "/v1/chat/completions")};
  for (int i = 0; i < 100; ++i) {
    std::string bytes = valid[static_cast<std::size_t>(draw(rng, 0, 3))];
    for (int n = draw(rng, 1, 4); n > 0; --n) {
      const auto at =
          static_cast<std::size_t>(draw(rng, 0, static_cast<std::int32_t>(bytes.size()) - 1));
      switch (draw(rng, 0, 2)) {
        case 0: bytes[at] = static_cast<char>(draw(rng, 0, 255)); break;
        case 1: bytes.erase(at, static_cast<std::size_t>(draw(rng, 1, 9))); break;
        default: bytes.insert(at, 1, static_cast<char>(draw(rng, 0, 255)));
      }
    }
    Wire wire(bench);
    wire.send(bytes);
    if (chance(rng, 0.5)) wire.read_until("\r\n\r\n");
    const int status = status_of(wire);
    INFO(bytes << "\n" << wire.received);
    CHECK((status == 0 || status == 200 || (status >= 400 && status < 500)));
  }
  Wire wire(bench);
  wire.send(completion(R"("max_tokens": 4)"));
  CHECK(wire.read_until("\"completion_tokens\":4"));
  CHECK(bench.wait_idle());
  wire.close();
  CHECK(bench.wait_until([&] { return !bench.server.has_connections(); }));
}

TEST_CASE("errors below /v1/messages have the form of that API", "[serve][http]") {
  HttpBench bench({}, 1000, {.api_key = "k"});
  const auto answer = [&](const std::string& request) {
    Wire wire(bench);
    wire.send(request);
    REQUIRE(wire.read_until("\r\n\r\n{"));
    REQUIRE(wire.read_until("}}"));
    return Json::parse(wire.received.substr(wire.received.find("\r\n\r\n") + 4));
  };
  const auto post = [](const std::string& path, const std::string& fields, std::size_t size) {
    return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields +
           "Content-Length: " + std::to_string(size) + "\r\n\r\n";
  };
  const std::string key = "x-api-key: k\r\n";
  for (const auto& [request, type] :
       {std::pair{post("/v1/messages", "", 0), "authentication_error"},
        std::pair{post("/v1/messages", "x-api-key: j\r\n", 0), "authentication_error"},
        std::pair{post("/v1/messages/batches", key, 0), "not_found_error"},
        std::pair{"GET /v1/messages HTTP/1.1\r\nHost: localhost\r\n" + key + "\r\n",
                  "invalid_request_error"},
        std::pair{post("/v1/messages", key, 1'000'000'000), "request_too_large"},
        std::pair{post("/v1/messages?beta=true", key, 2) + "{}", "invalid_request_error"}}) {
    const Json error = answer(request);
    INFO(request << error);
    CHECK(error["type"] == Json("error"));
    CHECK(error["error"]["type"] == Json(type));
    CHECK_FALSE(error["error"]["message"].string().empty());
  }
  CHECK_FALSE(answer(post("/v1/other", key, 0)).contains("type"));
  // The names of what a busy server says.
  for (const auto& [status, type] :
       {std::pair{429, "rate_limit_error"}, std::pair{503, "overloaded_error"},
        std::pair{500, "api_error"}, std::pair{403, "permission_error"}}) {
    const Reply reply = in_form_of("/v1/messages", error_reply(status, "m"));
    CHECK(Json::parse(reply.body)["error"]["type"] == Json(type));
    CHECK(reply.extra_header == error_reply(status, "m").extra_header);
    CHECK(in_form_of("/v1/completions", error_reply(status, "m")).body ==
          error_reply(status, "m").body);
  }
}

}  // namespace TEST_FILE
