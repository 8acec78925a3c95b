// SPDX-License-Identifier: Apache-2.0
// Reads HTTP/1.1 requests from bytes, wherever the network splits them, as strictly as RFC 9112
// allows. A reader that sees another end of a request than the sender executes a body as a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metronome {

struct HttpRequest {
  std::string method;
  std::string target = {};  // begins with '/', or is "*"
  bool is_http10 = false;
  bool keeps_alive = true;
  bool expects_continue = false;  // the client waits for "100 Continue" before its body
  std::string host = {};          // as sent, with a port; empty: none (HTTP/1.0)
  std::string body = {};
  // All fields in order; names in lower case.
  std::vector<std::pair<std::string, std::string>> fields = {};

  // The value of the first field of this name; empty: none.
  std::string_view field(std::string_view name) const;
};

// Whether a text is a token (RFC 9110, 5.6.2), as names of fields are.
bool is_token(std::string_view text);

// A part of a target without its percent encoding (RFC 3986, 2.1). nullopt: a '%' without two
// digits.
std::optional<std::string> percent_decoded(std::string_view text);

// A request that is refused. The connection must close: nobody knows where the next one begins.
struct HttpRefusal {
  int status = 400;
  std::string message;
};

class RequestReader {
 public:
  struct Limits {
    std::size_t header_bytes = 16 * 1024;  // of the request line and all fields; also of a trailer
    std::size_t body_bytes = 8 * 1024 * 1024;
  };
  enum class State : std::uint8_t {
    Empty,   // no byte of a request has come
    Header,  // within the header
    Body,    // the header is complete, the body is not
    Whole,
    Refused
  };

  explicit RequestReader(const Limits& limits) : limits_(limits) {}

  // Takes bytes, but none after the header's end or the request's end, and returns how many. Call
  // it again with the others unless the request is Whole or Refused. Line breaks before a request
  // are skipped (RFC 9112, 2.2).
  std::size_t put(std::string_view bytes);

  State state() const { return state_; }
  const HttpRefusal& refusal() const { return refusal_; }
  // Without the body until the request is Whole.
  const HttpRequest& request() const { return request_; }
  HttpRequest take() { return std::move(request_); }
  std::size_t num_body_bytes() const { return request_.body.size(); }

 private:
  // The part of the body that comes next.
  enum class Part : std::uint8_t { Length, ChunkSize, Chunk, ChunkEnd, Trailer };

  std::size_t put_header(std::string_view bytes);
  std::size_t put_body(std::string_view bytes);
  std::size_t put_content(std::string_view bytes);
  std::size_t put_line(std::string_view bytes);
  bool may_follow(char byte);
  void end_line();
  void read_header();
  bool read_request_line(std::string_view line);
  bool read_field(std::string_view line);
  void read_framing();
  bool read_host();
  void begin_chunk();
  void refuse(int status, std::string message);
  void refuse_body();

  Limits limits_;
  State state_ = State::Empty;
  HttpRefusal refusal_;
  HttpRequest request_;
  Part part_ = Part::Length;
  bool is_in_method_ = true;         // at the beginning of the header
  std::string text_;                 // of the header, or of a line between chunks
  std::uint64_t num_left_ = 0;       // bytes of the body, or of the chunk
  std::size_t num_extra_bytes_ = 0;  // of extensions of chunks, and of the trailer
};

}  // namespace metronome
