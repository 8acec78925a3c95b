// The answer of a server to one streaming request, read from bytes as they come: HTTP/1.1, inside
// it server-sent events, inside those the chunks of OpenAI's completions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace metronome {

// What one server-sent event says. A chunk with choices carries a token, as vLLM's benchmark counts
// them, also where its text is empty.
struct StreamEvent {
  bool has_choices = false;
  std::string finish_reason;  // empty: null or not there
  std::string error;          // the message of an error event; empty: none
  std::optional<std::int64_t> prompt_tokens;
  std::optional<std::int64_t> completion_tokens;
};

// Reads the JSON of an event. What is no JSON object is an error that says so.
StreamEvent parse_stream_event(std::string_view json);

// The message of an error's body: OpenAI's {"error": {"message"}}, vLLM's older {"message"} and
// FastAPI's {"detail"}, else the text itself. One line, of bounded length.
std::string error_body_text(std::string_view body);

// Splits a byte stream into the data of server-sent events: lines that end in LF, CR or CRLF,
// wherever the bytes are split; comments and other fields are passed over.
class SseSplitter {
 public:
  // Calls visit(data) for every event that `bytes` complete. False: a line is longer than
  // kMaxLineBytes, and nothing more is to be read.
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
        if (!take_line()) return false;
        line_.clear();
      }
    }
    return true;
  }

  // At the end of the stream: an event whose empty line never came counts as well.
  template <class Visit>
  void finish(Visit visit) {
    if (!line_.empty()) take_line();
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
  bool take_line();

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

  // The next bytes from the socket, split anywhere. Returns how many token events they complete.
  // Nothing after is_over() is read; it spoils the connection.
  std::int32_t read(std::string_view bytes);
  // The server closed the connection. Returns as read() does. The response is over.
  std::int32_t end();

  bool is_over() const;
  bool has_begun() const;  // a byte has come
  // Whether another request may follow on the connection, once the response is over.
  bool keeps_alive() const;
  // Why the request failed, in one line; empty: it was answered to its end.
  const std::string& error() const;
  // The server has no room now and says when to come back: 503 or 429 with Retry-After.
  bool is_refusal() const;
  std::int32_t status() const;  // of HTTP; 0: not known yet

  const std::string& finish_reason() const;
  // As the server's usage has them.
  std::optional<std::int64_t> prompt_tokens() const;
  std::optional<std::int64_t> completion_tokens() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metronome
