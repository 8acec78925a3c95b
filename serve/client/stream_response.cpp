// SPDX-License-Identifier: Apache-2.0
#include "serve/client/stream_response.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <fmt/core.h>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/config/config_reader.h"

namespace metronome {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr std::size_t kMaxErrorBytes = 400;
constexpr std::size_t kMaxKeptBody = std::size_t{16} << 10;

// Makes a server's text fit into a one-line message.
std::string shortened(std::string_view text) {
  std::string line = printable(text.substr(0, kMaxErrorBytes));
  std::replace(line.begin(), line.end(), '\n', ' ');
  if (text.size() > kMaxErrorBytes) line += " ...";
  return line;
}

// Extracts the few needed fields of a chunk without building a tree, as there is a chunk per token.
class EventFacts final : public JsonEvents {
 public:
  explicit EventFacts(StreamEvent& event) : event_(event) {}
  bool is_object() const { return is_object_; }

  void null() override { value(); }
  void boolean(bool) override { value(); }
  void integer(std::int64_t number) override { count(number); }
  void unsigned_integer(std::uint64_t number) override {
    count(static_cast<std::int64_t>(std::min<std::uint64_t>(number, INT64_MAX)));
  }
  void number(double) override { value(); }
  void string(std::string_view text) override {
    value();
    if (depth_ == 3 && top_ == Top::Choices && key_ == Key::FinishReason) {
      event_.finish_reason = text;
    } else if ((depth_ == 1 && top_ == Top::Error) ||
               (depth_ == 2 && top_ == Top::Error && key_ == Key::Message)) {
      event_.error = text.empty() ? "an error without a message" : shortened(text);
    }
  }
  void begin_object() override {
    value();
    if (depth_ == 0) is_object_ = true;
    if (depth_ == 1 && top_ == Top::Error) event_.error = "an error without a message";
    ++depth_;
    key_ = Key::Other;
  }
  void begin_array() override {
    value();
    ++depth_;
  }
  void end_object() override { --depth_; }
  void end_array() override { --depth_; }
  void key(std::string_view name) override {
    if (depth_ == 1) {
      top_ = name == "choices" ? Top::Choices
             : name == "usage" ? Top::Usage
             : name == "error" ? Top::Error
                               : Top::Other;
    }
    key_ = name == "finish_reason"       ? Key::FinishReason
           : name == "message"           ? Key::Message
           : name == "prompt_tokens"     ? Key::PromptTokens
           : name == "completion_tokens" ? Key::CompletionTokens
                                         : Key::Other;
  }

 private:
  enum class Top : std::uint8_t { Other, Choices, Usage, Error };
  enum class Key : std::uint8_t { Other, FinishReason, Message, PromptTokens, CompletionTokens };

  void value() {
    if (depth_ == 2 && top_ == Top::Choices) event_.has_choices = true;
  }
  void count(std::int64_t number) {
    value();
    if (depth_ != 2 || top_ != Top::Usage || number < 0) return;
    if (key_ == Key::PromptTokens) event_.prompt_tokens = number;
    if (key_ == Key::CompletionTokens) event_.completion_tokens = number;
  }

  StreamEvent& event_;
  int depth_ = 0;
  Top top_ = Top::Other;
  Key key_ = Key::Other;
  bool is_object_ = false;
};

}  // namespace

StreamEvent parse_stream_event(std::string_view json) {
  StreamEvent event;
  EventFacts facts(event);
  try {
    parse_json(json, facts);
    if (facts.is_object()) return event;
  } catch (const JsonError&) {  // fields read before the error do not count
  }
  StreamEvent bad;
  bad.error = "the server sent an event that is not a JSON object: " + shortened(json);
  return bad;
}

std::string error_body_text(std::string_view body) {
  const Json json = Json::try_parse(body).value_or(Json());
  const auto text_at = [](const Json& object, const char* key) -> std::string {
    const Json* found = object.find(key);
    if (found == nullptr || found->is_null()) return {};
    return found->is_string() ? found->string() : found->dump({.sorts_keys = true});
  };
  std::string text;
  if (const Json* error = json.find("error")) text = text_at(*error, "message");
  for (const char* key : {"error", "message", "detail"}) {
    if (text.empty()) text = text_at(json, key);
  }
  return shortened(text.empty() ? body : text);
}

bool SseSplitter::read_line() {
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // UTF-8's; a stream may begin with it
  std::string_view line = line_;
  if (std::exchange(is_first_line_, false) && line.starts_with(kMark)) line.remove_prefix(3);
  if (!line.starts_with("data")) return true;
  line.remove_prefix(4);
  if (!line.empty() && line.front() != ':') return true;  // another field
  if (!line.empty()) line.remove_prefix(1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (data_.size() + line.size() >= kMaxLineBytes) return false;
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return true;
}

// Beast's parser passes on the body as it decodes it. Only an error's body is kept.
struct StreamResponse::Impl final : http::basic_parser<false> {
  Impl() {
    eager(true);
    body_limit(UINT64_MAX);  // Boost 1.74 takes none for 0
    header_limit(64 * 1024);
  }

  // Overrides of http::basic_parser. Accepts only responses; reads only the few needed fields.
  void on_request_impl(http::verb, beast::string_view, beast::string_view, int,
                       beast::error_code&) override {}
  void on_response_impl(int code, beast::string_view, int, beast::error_code&) override {
    status = code;
  }
  void on_field_impl(http::field name, beast::string_view, beast::string_view value,
                     beast::error_code&) override {
    if (name == http::field::content_type) content_type.assign(value.data(), value.size());
    if (name == http::field::retry_after) has_retry_after = true;
  }
  void on_header_impl(beast::error_code&) override {
    // The body of anything except an event stream is an error text.
    is_stream = status == 200 && content_type.starts_with("text/event-stream");
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, beast::error_code&) override {}
  std::size_t on_body_impl(beast::string_view bytes, beast::error_code& error) override {
    return read_body(bytes, error);
  }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, beast::error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes,
                                 beast::error_code& error) override {
    return read_body(bytes, error);
  }
  void on_finish_impl(beast::error_code&) override {}

  std::size_t read_body(beast::string_view bytes, beast::error_code& error) {
    const std::string_view text(bytes.data(), bytes.size());
    if (!is_stream) {
      kept_body += text.substr(0, kMaxKeptBody - std::min(kMaxKeptBody, kept_body.size()));
    } else if (!splitter.read(text, [this](std::string_view data) { read_event(data); })) {
      fail(fmt::format("the server sent an event of more than {} MiB",
                       SseSplitter::kMaxLineBytes >> 20));
      error = http::make_error_code(http::error::body_limit);
    }
    return bytes.size();
  }

  void read_event(std::string_view data) {
    if (is_done) return;  // events after [DONE] do not count
    if (data == "[DONE]") {
      is_done = true;
      return;
    }
    StreamEvent event = parse_stream_event(data);
    if (!event.error.empty()) fail(event.error);
    if (event.has_choices) ++num_tokens;
    if (!event.finish_reason.empty()) finish_reason = std::move(event.finish_reason);
    if (event.prompt_tokens) prompt_tokens = event.prompt_tokens;
    if (event.completion_tokens) completion_tokens = event.completion_tokens;
  }

  // An event without its final empty line may be incomplete.
  void read_last_event(std::string_view data) {
    if (data != "[DONE]" && !Json::try_parse(data)) {
      if (!is_done) fail("the stream ended in the middle of an event");
      return;
    }
    read_event(data);
  }

  void fail(std::string text) {  // the first reason is reported
    if (error_text.empty()) error_text = std::move(text);
  }

  // Parses `bytes` as far as possible; returns the number of bytes used.
  std::size_t parse(std::string_view bytes) {
    std::size_t used = 0;
    while (used < bytes.size() && !is_over) {
      beast::error_code error;
      const std::size_t taken =
          put(asio::const_buffer(bytes.data() + used, bytes.size() - used), error);
      used += taken;
      if (error == http::error::need_more) break;
      if (error) {
        fail("the server's answer is not HTTP/1.1: " + error.message());
        is_broken = is_over = true;
      } else if (basic_parser::is_done()) {
        is_over = true;
        judge();
      } else if (taken == 0) {
        break;
      }
    }
    return used;
  }

  // Decides the outcome of the complete response.
  void judge() {
    if (is_stream) splitter.finish([this](std::string_view data) { read_last_event(data); });
    if (status != 0 && status != 200) {
      const std::string body = error_body_text(kept_body);
      fail(fmt::format("HTTP {}{}", status, body.empty() ? "" : ": " + body));
    } else if (!is_stream) {
      fail("the server answered with " +
           (content_type.empty() ? "no content type" : shortened(content_type)) +
           ", not with text/event-stream: it does not stream");
    } else if (!is_done && finish_reason.empty()) {
      fail("the stream ended without [DONE] or a finish reason");
    }
  }

  SseSplitter splitter;
  std::string pending;  // bytes of an incomplete header or chunk header
  std::string content_type;
  std::string kept_body;
  std::string error_text;
  std::string finish_reason;
  std::optional<std::int64_t> prompt_tokens;
  std::optional<std::int64_t> completion_tokens;
  std::int32_t num_tokens = 0;
  std::int32_t status = 0;
  bool has_begun = false;
  bool has_retry_after = false;
  bool is_stream = false;
  bool is_done = false;  // [DONE] was received
  bool is_over = false;
  bool is_broken = false;
  bool is_clean = true;  // no bytes follow the response
};

StreamResponse::StreamResponse() : impl_(std::make_unique<Impl>()) {}
StreamResponse::~StreamResponse() = default;
StreamResponse::StreamResponse(StreamResponse&&) noexcept = default;
StreamResponse& StreamResponse::operator=(StreamResponse&&) noexcept = default;

std::int32_t StreamResponse::read(std::string_view bytes) {
  Impl& own = *impl_;
  if (bytes.empty()) return 0;
  if (own.is_over) {
    own.is_clean = false;
    return 0;
  }
  own.has_begun = true;
  const std::int32_t before = own.num_tokens;
  std::size_t used = 0;
  if (own.pending.empty()) {
    used = own.parse(bytes);
    own.pending.assign(bytes.substr(used));
  } else {
    own.pending += bytes;
    used = own.parse(own.pending);
    own.pending.erase(0, used);
  }
  if (own.is_over && !own.pending.empty()) own.is_clean = false;
  return own.num_tokens - before;
}

std::int32_t StreamResponse::end() {
  Impl& own = *impl_;
  if (own.is_over) return 0;
  const std::int32_t before = own.num_tokens;
  own.is_over = own.is_broken = true;
  beast::error_code error;
  if (own.has_begun) own.put_eof(error);
  if (!own.has_begun) {
    own.fail("the server closed the connection without an answer");
  } else if (error) {
    // After [DONE] the stream is complete.
    if (!own.is_done) own.fail("the server closed the connection in the middle of its answer");
  } else {
    own.judge();
  }
  return own.num_tokens - before;
}

bool StreamResponse::is_over() const { return impl_->is_over; }
bool StreamResponse::has_begun() const { return impl_->has_begun; }
bool StreamResponse::keeps_alive() const {
  return impl_->is_over && !impl_->is_broken && impl_->is_clean && impl_->keep_alive();
}
const std::string& StreamResponse::error() const { return impl_->error_text; }
bool StreamResponse::is_refusal() const {
  return (impl_->status == 503 || impl_->status == 429) && impl_->has_retry_after;
}
std::int32_t StreamResponse::status() const { return impl_->status; }
const std::string& StreamResponse::finish_reason() const { return impl_->finish_reason; }
std::optional<std::int64_t> StreamResponse::prompt_tokens() const { return impl_->prompt_tokens; }
std::optional<std::int64_t> StreamResponse::completion_tokens() const {
  return impl_->completion_tokens;
}

}  // namespace metronome
