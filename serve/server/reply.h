// SPDX-License-Identifier: Apache-2.0
// The server answers a request of a client with a reply or a stream.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace metronome {

// A complete response.
struct Reply {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::string extra_header = {};  // "Retry-After: 1"; empty: none
};

// An error of the API. 429 and 503 say when to try again.
Reply error_reply(int status, std::string_view message, std::string_view param = {});

// An error in the form of the API of the target: by the names of Anthropic's below /v1/messages,
// with the fields of the others. Other replies stay as they are.
Reply in_form_of(std::string_view target, Reply reply);

// The connection of a request. It may close at any time; then the calls have no effect.
class Client {
 public:
  virtual ~Client() = default;
  // Connections of one address are those of one client.
  virtual const std::string& address() const = 0;
  // The body was read and is no longer kept.
  virtual void forget_body() {}
  virtual void reply(Reply reply) = 0;
  // Sends status 200 and starts an event stream, which ends with end_stream().
  virtual void begin_stream() = 0;
  // How many bytes of a stream may be written now. A slow reader has none: its tokens wait.
  virtual std::size_t room() const = 0;
  virtual void write(std::string_view bytes) = 0;  // kept until flush()
  virtual void end_stream() = 0;
  // `has_more`: Service::resume() is called when there is room again.
  virtual void flush(bool has_more) = 0;
};

}  // namespace metronome
