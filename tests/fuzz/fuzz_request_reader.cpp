// SPDX-License-Identifier: Apache-2.0
// The first byte says where to split the rest, which is what a client sends. The framing must not
// depend on the split. An accepted request must mean the same to another reader, Boost.Beast's, if
// that accepts it.
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "serve/server/request_reader.h"

namespace {

using namespace metronome;
namespace http = boost::beast::http;

constexpr RequestReader::Limits kLimits{.header_bytes = 1024, .body_bytes = 512};

struct Framed {
  HttpRequest request;
  std::size_t begin = 0, end = 0;  // of its bytes
};

struct Outcome {
  std::vector<Framed> requests;
  RequestReader::State state = RequestReader::State::Empty;
  int status = 0;
};

Outcome read(std::string_view bytes, std::size_t piece_bytes) {
  Outcome outcome;
  RequestReader reader(kLimits);
  std::size_t num_taken = 0, begin = 0;
  while (num_taken < bytes.size() && reader.state() != RequestReader::State::Refused) {
    const std::size_t size = std::min(piece_bytes, bytes.size() - num_taken);
    const std::size_t count = reader.put(bytes.substr(num_taken, size));
    METRONOME_CHECK(count <= size, "a reader takes what it is given");
    const bool is_over = reader.state() == RequestReader::State::Refused;
    METRONOME_CHECK(count > 0 || is_over, "a reader goes on, or refuses");
    num_taken += count;
    METRONOME_CHECK(reader.num_body_bytes() <= kLimits.body_bytes, "a body is within its limit");
    if (reader.state() != RequestReader::State::Whole) continue;
    outcome.requests.push_back({reader.take(), begin, num_taken});
    begin = num_taken;
    reader = RequestReader(kLimits);
  }
  outcome.state = reader.state();
  if (outcome.state == RequestReader::State::Refused) outcome.status = reader.refusal().status;
  return outcome;
}

void check_same(const Outcome& a, const Outcome& b) {
  METRONOME_CHECK(
      a.state == b.state && a.status == b.status && a.requests.size() == b.requests.size(),
      "the split of the bytes does not matter");
  for (std::size_t i = 0; i < a.requests.size(); ++i) {
    METRONOME_CHECK(a.requests[i].end == b.requests[i].end &&
                        a.requests[i].request.body == b.requests[i].request.body &&
                        a.requests[i].request.fields == b.requests[i].request.fields,
                    "the split of the bytes does not matter");
  }
}

void check_beast(std::string_view bytes, const HttpRequest& request) {
  http::request_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(std::uint64_t{1} << 20);
  boost::system::error_code error;
  bytes.remove_prefix(bytes.find_first_not_of("\r\n"));
  std::size_t num_taken = 0;
  while (!error && !parser.is_done() && num_taken < bytes.size()) {
    num_taken +=
        parser.put(boost::asio::buffer(bytes.data() + num_taken, bytes.size() - num_taken), error);
  }
  if (error) return;  // it is stricter, for example with the words of Connection
  METRONOME_CHECK(parser.is_done(), "another reader sees an end");
  METRONOME_CHECK(num_taken == bytes.size(), "another reader sees the same end");
  METRONOME_CHECK(std::string_view(parser.get().body()) == request.body, "and the same body");
  const auto method = parser.get().method_string();
  METRONOME_CHECK(std::string_view(method.data(), method.size()) == request.method,
                  "and the same method");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const Outcome whole = read(bytes, SIZE_MAX);
  check_same(whole, read(bytes, 1));
  check_same(whole, read(bytes, std::size_t{2} + data[0] % 64));
  for (const Framed& framed : whole.requests) {
    METRONOME_CHECK(framed.request.is_http10 || !framed.request.host.empty() ||
                        framed.request.field("host").empty(),
                    "a host is kept");
    check_beast(bytes.substr(framed.begin, framed.end - framed.begin), framed.request);
  }
  return 0;
}
