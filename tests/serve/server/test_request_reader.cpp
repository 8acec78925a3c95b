// SPDX-License-Identifier: Apache-2.0
#include "serve/server/request_reader.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

using State = RequestReader::State;

constexpr RequestReader::Limits kLimits{.header_bytes = 2048, .body_bytes = 1000};

// The outcome of reading some bytes, in pieces of these sizes.
struct Outcome {
  std::vector<HttpRequest> requests;
  State state = State::Empty;
  int status = 0;
  std::size_t num_taken = 0;

  bool operator==(const Outcome& other) const {
    const auto same = [](const HttpRequest& a, const HttpRequest& b) {
      return a.method == b.method && a.target == b.target && a.body == b.body &&
             a.fields == b.fields && a.host == b.host && a.keeps_alive == b.keeps_alive;
    };
    return state == other.state && status == other.status && num_taken == other.num_taken &&
           std::equal(requests.begin(), requests.end(), other.requests.begin(),
                      other.requests.end(), same);
  }
};

template <class NextSize>
Outcome read_all(std::string_view bytes, const NextSize& next_size) {
  Outcome outcome;
  RequestReader reader(kLimits);
  while (!bytes.empty()) {
    std::string_view piece = bytes.substr(0, next_size());
    bytes.remove_prefix(piece.size());
    while (!piece.empty() && reader.state() != State::Refused) {
      const std::size_t count = reader.put(piece);
      outcome.num_taken += count;
      piece.remove_prefix(count);
      if (reader.state() != State::Whole) continue;
      outcome.requests.push_back(reader.take());
      reader = RequestReader(kLimits);
    }
  }
  outcome.state = reader.state();
  outcome.status = reader.state() == State::Refused ? reader.refusal().status : 0;
  return outcome;
}

Outcome read_at_once(std::string_view bytes) {
  return read_all(bytes, [] { return std::string_view::npos; });
}

const std::string kGet = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
const std::string kPost = "POST /generate HTTP/1.1\r\nHost: x\r\n";

int status_of(const std::string& bytes) {
  const Outcome outcome = read_at_once(bytes);
  INFO(bytes);
  CHECK(outcome.requests.empty());
  return outcome.status;
}

}  // namespace

TEST_CASE("a request with a length ends where it says", "[serve][http]") {
  const Outcome outcome =
      read_at_once("\r\n\n" + kPost + "content-LENGTH:\t 3 \r\nX-A: b:c\r\n\r\nabc" + kGet);
  REQUIRE(outcome.requests.size() == 2);
  const HttpRequest& first = outcome.requests[0];
  CHECK(first.method == "POST");
  CHECK(first.target == "/generate");
  CHECK(first.host == "x");
  CHECK(first.body == "abc");
  CHECK(first.field("content-length") == "3");
  CHECK(first.field("x-a") == "b:c");
  CHECK(first.field("x-b").empty());
  CHECK(outcome.requests[1].target == "/health");
  CHECK(outcome.state == State::Empty);
}

TEST_CASE("a chunked body is put together; its trailer changes nothing", "[serve][http]") {
  const Outcome outcome = read_at_once(kPost +
                                       "Transfer-Encoding: Chunked\r\n\r\n"
                                       "3\r\nabc\r\n0a ;x=\"y\"\r\n0123456789\r\n0\r\n"
                                       "Host: evil\r\nContent-Length: 9\r\n\r\n" +
                                       kGet);
  REQUIRE(outcome.requests.size() == 2);
  CHECK(outcome.requests[0].body == "abc0123456789");
  CHECK(outcome.requests[0].host == "x");
  CHECK(outcome.requests[0].field("content-length").empty());
  CHECK(outcome.requests[1].target == "/health");
}

TEST_CASE("who speaks of a coding that nobody knows gets 501", "[serve][http]") {
  const std::string rest = "\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const std::string coding :
       {"xchunked", "chunked, identity", "identity", "gzip, chunked", "chunked, chunked", "",
        "chunked;q=1", "\"chunked\"", "chunked\r\nTransfer-Encoding: chunked",
        "identity\r\nTransfer-Encoding: chunked"}) {
    CHECK(status_of(kPost + "Transfer-Encoding: " + coding + rest) == 501);
  }
  CHECK(status_of(kPost + "Transfer-Encoding: chunked\r\nContent-Length: 3" + rest) == 400);
  CHECK(status_of(kPost + "Content-Length: 3\r\nTransfer-Encoding: xchunked" + rest) == 400);
  CHECK(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked" + rest) == 400);
}

TEST_CASE("lengths are plain numbers, and there is one", "[serve][http]") {
  for (const std::string length : {"-1", "+1", "1 2", "1,1", "0x1", "", "1\r\nContent-Length: 1",
                                   "99999999999999999999", "1e2", "1.0", "\xc2\xb9"}) {
    CHECK(status_of(kPost + "Content-Length: " + length + "\r\n\r\n") == 400);
  }
  CHECK(status_of(kPost + "Content-Length: 1001\r\n\r\n") == 413);
  CHECK(status_of(kPost + "Content-Length: 18446744073709551615\r\n\r\n") == 413);
}

TEST_CASE("HTTP/1.1 has exactly one valid host", "[serve][http]") {
  CHECK(status_of("GET / HTTP/1.1\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: a b\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n") == 400);
  CHECK(status_of("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n") == 400);
  CHECK(read_at_once("GET / HTTP/1.0\r\n\r\n").requests.size() == 1);
  const Outcome absolute = read_at_once("GET http://b:1?q=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  REQUIRE(absolute.requests.size() == 1);
  CHECK(absolute.requests[0].host == "b:1");
  CHECK(absolute.requests[0].target == "/?q=1");
}

TEST_CASE("headers that two readers may read otherwise are refused", "[serve][http]") {
  for (const std::string header :
       {"Host: x\r\nX: a\r\n b", "Host: x\r\nX: a\r\n\tb", " Host: x", "Host : x", "Host x",
        ": x\r\nHost: x", "Host: x\r\nX: a\rb", "Host: x\nX: a", "Host: x\r\nX: a\x01z",
        "Host: x\r\nX\xc3\xa9: a", "Host: x\r\n\x7f: a"}) {
    CHECK(status_of("GET / HTTP/1.1\r\n" + header + "\r\n\r\n") == 400);
  }
  CHECK(status_of(std::string("GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 35)) == 400);
  for (const std::string line :
       {"GET /health", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET / HTTP/2.0", "GET / http/1.1",
        "GET /a b HTTP/1.1", "G(T / HTTP/1.1", "GET /\xc3\xa9 HTTP/1.1", " GET / HTTP/1.1",
        "GET / HTTP/1.10"}) {
    CHECK(status_of(line + "\r\nHost: x\r\n\r\n") == 400);
  }
  std::string many = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 200; ++i) many += "a:\r\n";
  CHECK(status_of(many + "\r\n") == 431);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(2048, 'x')) == 431);
  CHECK(status_of("\x16\x03\x01") == 400);  // TLS: refused before a line ends
}

TEST_CASE("chunks that are not as they say are refused", "[serve][http]") {
  const std::string head = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string body :
       {"x\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", " 1\r\n", "1 \r\n", "\r\n", ";a=b\r\n",
        "3\r\nabcd\r\n", "3\r\nabc0\r\n", "3\nabc\r\n", "11111111111111111\r\n", "1;a=\"\n\"\r\n",
        "1;a=\"\x01\"\r\n", "0\r\nno field\r\n", "0\r\n folded: x\r\n",
        "0\r\nX: a\r\n folded\r\n"}) {
    CHECK(status_of(head + body) == 400);
  }
  CHECK(status_of(head + "3e9\r\n") == 413);
  CHECK(status_of(head + "3e8\r\n" + std::string(1000, 'x') + "\r\n1\r\n") == 413);
  CHECK(status_of(head + "1;" + std::string(3000, 'x')) == 400);
  std::string extensions = head;
  for (int i = 0; i < 30; ++i) extensions += "1;" + std::string(100, 'x') + "\r\na\r\n";
  CHECK(status_of(extensions) == 400);
  CHECK(status_of(head + "0\r\n" + "X: " + std::string(1500, 'x') +
                  "\r\nY: " + std::string(1500, 'x') + "\r\n\r\n") == 431);
}

TEST_CASE("connections stay open as both sides say", "[serve][http]") {
  const auto keeps = [](const std::string& version, const std::string& connection) {
    const Outcome outcome =
        read_at_once("GET / " + version + "\r\nHost: x\r\n" + connection + "\r\n");
    REQUIRE(outcome.requests.size() == 1);
    return outcome.requests[0].keeps_alive;
  };
  CHECK(keeps("HTTP/1.1", ""));
  CHECK_FALSE(keeps("HTTP/1.1", "Connection: x, Close\r\n"));
  CHECK_FALSE(keeps("HTTP/1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
  CHECK_FALSE(keeps("HTTP/1.0", ""));
  CHECK(keeps("HTTP/1.0", "Connection: Keep-Alive\r\n"));
}

TEST_CASE("the network may split requests anywhere", "[serve][http]") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u, 4u);
  INFO("seed " << seed);
  Rng rng(seed, "requests");
  const std::string parts[] = {
      kGet,
      "\r\n",
      kPost + "Content-Length: 5\r\n\r\nhello",
      kPost + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
      kPost + "Transfer-Encoding: xchunked\r\n\r\nhello",
      kPost + "Content-Length: 5, 5\r\n\r\n"};
  for (int i = 0; i < 300; ++i) {
    std::string bytes;
    for (int n = draw(rng, 1, 5); n > 0; --n) bytes += parts[draw(rng, 0, 5)];
    if (chance(rng, 0.5)) {
      bytes[static_cast<std::size_t>(draw(rng, 0, static_cast<std::int32_t>(bytes.size()) - 1))] =
          static_cast<char>(draw(rng, 0, 255));
    }
    INFO(bytes);
    const Outcome whole = read_at_once(bytes);
    CHECK(whole == read_all(bytes, [] { return std::size_t{1}; }));
    CHECK(whole == read_all(bytes, [&] { return static_cast<std::size_t>(draw(rng, 1, 20)); }));
  }
}

}  // namespace TEST_FILE
