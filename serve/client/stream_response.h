// SPDX-License-Identifier: Apache-2.0
// Parses a server's answer to one streaming request incrementally. HTTP/1.1 contains server-sent
// events, which contain the chunks of OpenAI's completions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace metronome {

// The content of one server-sent event. A chunk with choices carries a token, even with an empty
// text; vLLM's benchmark counts the same way.
struct StreamEvent {
  bool has_choices = false;
  std::string finish_reason;  // empty: null or absent
  std::string error;          // the message of an error event; empty: none
  std::optional<std::int64_t> prompt_tokens;
  std::optional<std::int64_t> completion_tokens;
};

// Reads the JSON of an event. Anything except a JSON object gives an event with an error.
StreamEvent parse_stream_event(std::string_view json);

// The message in an error's body: OpenAI's {"error": {"message"}}, vLLM's older {"message"} or
// FastAPI's {"detail"}, else the text itself. One line, of bounded length.
std::string error_body_text(std::string_view body);

// Splits a byte stream into the data of server-sent events. Lines end in LF, CR or CRLF, and the
// bytes may be split anywhere. Skips comments and other fields.
class SseSplitter {
 public:
  // Calls visit(data) for every event that `bytes` complete. Returns false if a line is longer than
  // kMaxLineBytes; then stop reading.
  template <class Visit>
  bool read(std::string_view bytes, Visit visit) {
    for (const char c : bytes) {
      if (is_behind_cr_ && c == '\n') {
        is_behind_cr_ = false;
        continue;
      }
      is_behind_cr_ = c == '\r';
      if (c != '\n' && c != '\r') {
        if (line_.size() == kMaxLineBytes) return false;
        line_ += c;
        continue;
      }
      if (line_.empty()) {
        flush(visit);
      } else {
        if (!read_line()) return false;
        line_.clear();
      }
    }
    return true;
  }

  // At the end of the stream: an event without its final empty line also counts.
  template <class Visit>
  void finish(Visit visit) {
    if (!line_.empty()) read_line();
    line_.clear();
    flush(visit);
  }

  static constexpr std::size_t kMaxLineBytes = std::size_t{4} << 20;

 private:
  template <class Visit>
  void flush(Visit& visit) {
    if (has_data_) visit(std::string_view(data_));
    data_.clear();
    has_data_ = false;
  }
  bool read_line();

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool is_behind_cr_ = false;
  bool is_first_line_ = true;
};

// One response, from its first byte to its end.
class StreamResponse {
 public:
  StreamResponse();
  ~StreamResponse();
  StreamResponse(StreamResponse&&) noexcept;
  StreamResponse& operator=(StreamResponse&&) noexcept;

  // Takes the next bytes from the socket, split anywhere. Returns the number of token events that
  // they complete. Bytes after is_over() are not read; the connection cannot be kept then.
  std::int32_t read(std::string_view bytes);
  // The server closed the connection, which ends the response. Returns as read() does.
  std::int32_t end();

  bool is_over() const;
  bool has_begun() const;  // a byte was received
  // Whether another request may follow on the connection, once the response is over.
  bool keeps_alive() const;
  // Why the request failed, in one line; empty: it was answered completely.
  const std::string& error() const;
  // The server has no capacity now and says when to retry: 503 or 429 with Retry-After.
  bool is_refusal() const;
  std::int32_t status() const;  // of HTTP; 0: not known yet

  const std::string& finish_reason() const;
  // Counts from the server's usage.
  std::optional<std::int64_t> prompt_tokens() const;
  std::optional<std::int64_t> completion_tokens() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metronome
