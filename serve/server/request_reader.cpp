// SPDX-License-Identifier: Apache-2.0
#include "serve/server/request_reader.h"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <utility>

#include "core/base/names.h"

namespace metronome {
namespace {

constexpr std::size_t kMaxFields = 128;
constexpr const char* kNoHttp = "the request is not HTTP/1.1";

bool is_token_char(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kMarks.find(c) != kMarks.npos;
}

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// Whether a list of a field's value, separated by commas, has a word in lower case.
bool lists(std::string_view value, std::string_view word) {
  while (!value.empty()) {
    const std::size_t end = std::min(value.find(','), value.size());
    if (lower_ascii(without_blanks(value.substr(0, end))) == word) return true;
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  return false;
}

// A whole number without sign or blanks; nullopt: anything else, or too large.
std::optional<std::uint64_t> whole_number(std::string_view text, int base) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base);
  if (text.empty() || error != std::errc() || rest != end) return std::nullopt;
  return number;
}

bool is_host_char(char c) {
  constexpr std::string_view kMarks = "-._~:[]%!$&'()*+;=";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kMarks.find(c) != kMarks.npos;
}

}  // namespace

std::string_view HttpRequest::field(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return {};
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    const bool is_encoded = text.front() == '%';
    const std::size_t size = is_encoded ? 3 : 1;
    if (text.size() < size) return std::nullopt;
    const auto code = is_encoded ? whole_number(text.substr(1, 2), 16) : std::nullopt;
    if (is_encoded && !code) return std::nullopt;
    decoded += is_encoded ? static_cast<char>(*code) : text.front();
    text.remove_prefix(size);
  }
  return decoded;
}

void RequestReader::refuse(int status, std::string message) {
  state_ = State::Refused;
  refusal_ = {status, std::move(message)};
}

void RequestReader::refuse_body() {
  refuse(413, fmt::format("the body is too large; allowed: {} bytes, the server's --max-body-bytes",
                          limits_.body_bytes));
}

std::size_t RequestReader::put(std::string_view bytes) {
  std::size_t num_taken = 0;
  if (state_ == State::Empty) {
    num_taken = std::min(bytes.find_first_not_of("\r\n"), bytes.size());
    bytes.remove_prefix(num_taken);
    if (bytes.empty()) return num_taken;
    state_ = State::Header;
  }
  if (state_ == State::Header) return num_taken + put_header(bytes);
  if (state_ == State::Body) return num_taken + put_body(bytes);
  return num_taken;
}

// ---- the header ----

// Whether a byte may follow those of text_. Lines end with CR and LF together.
bool RequestReader::may_follow(char byte) {
  const bool follows_cr = !text_.empty() && text_.back() == '\r';
  if (follows_cr != (byte == '\n')) return false;
  const auto code = static_cast<unsigned char>(byte);
  return (code >= 0x20 && code != 0x7f) || byte == '\t' || byte == '\r' || byte == '\n';
}

std::size_t RequestReader::put_header(std::string_view bytes) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    // Refuses anything but a method at once: it may be another protocol, which waits for an answer.
    const bool ends_method = !text_.empty() && bytes[i] == ' ';
    if (!may_follow(bytes[i]) || (is_in_method_ && !ends_method && !is_token_char(bytes[i]))) {
      refuse(400, kNoHttp);
      return i;
    }
    is_in_method_ = is_in_method_ && !ends_method;
    text_ += bytes[i];
    if (text_.size() > limits_.header_bytes) {
      refuse(431, fmt::format("the header is too large; allowed: {} bytes", limits_.header_bytes));
      return i + 1;
    }
    if (text_.ends_with(kEnd)) {
      read_header();
      return i + 1;
    }
  }
  return bytes.size();
}

void RequestReader::read_header() {
  std::string_view rest = text_;
  rest.remove_suffix(2);  // the empty line
  for (bool is_first = true; !rest.empty(); is_first = false) {
    const std::size_t end = rest.find("\r\n");
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    if (!(is_first ? read_request_line(line) : read_field(line))) return;
  }
  read_framing();
  text_.clear();
}

bool RequestReader::read_request_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  const std::string_view version = line.substr(last + 1);
  std::string_view target = first < last ? line.substr(first + 1, last - first - 1) : "";
  const bool is_visible =
      std::all_of(target.begin(), target.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!is_token(line.substr(0, first)) || target.empty() || !is_visible ||
      (version != "HTTP/1.1" && version != "HTTP/1.0")) {
    refuse(400, kNoHttp);
    return false;
  }
  request_.method = line.substr(0, first);
  request_.is_http10 = version == "HTTP/1.0";
  request_.target = target;
  return true;
}

bool RequestReader::read_field(std::string_view line) {
  if (line[0] == ' ' || line[0] == '\t') {
    refuse(400, "a field of the header is folded over several lines");
    return false;
  }
  const std::size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon))) {
    refuse(400, kNoHttp);
    return false;
  }
  if (request_.fields.size() == kMaxFields) {
    refuse(431, "the header has too many fields");
    return false;
  }
  request_.fields.emplace_back(lower_ascii(line.substr(0, colon)),
                               without_blanks(line.substr(colon + 1)));
  return true;
}

// Exactly one Host in HTTP/1.1 (RFC 9112, 3.2). A target with a host of its own has the last word.
bool RequestReader::read_host() {
  const auto is_host = [](const auto& field) { return field.first == "host"; };
  const auto count = std::count_if(request_.fields.begin(), request_.fields.end(), is_host);
  request_.host = request_.field("host");
  if (count > 1 || (count == 0 && !request_.is_http10) ||
      !std::all_of(request_.host.begin(), request_.host.end(), is_host_char)) {
    refuse(400, count > 1 ? "the header has several Hosts" : "the header has no valid Host");
    return false;
  }
  std::string& target = request_.target;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!lower_ascii(target.substr(0, scheme.size())).starts_with(scheme)) continue;
    const std::size_t end = std::min(target.find_first_of("/?", scheme.size()), target.size());
    request_.host = target.substr(scheme.size(), end - scheme.size());
    target.erase(0, end);
    if (!target.starts_with('/')) target.insert(0, "/");
    if (request_.host.empty() ||
        !std::all_of(request_.host.begin(), request_.host.end(), is_host_char)) {
      refuse(400, "the target has no valid host");
      return false;
    }
  }
  return true;
}

// Where the body ends (RFC 9112, 6.3).
void RequestReader::read_framing() {
  if (!read_host()) return;
  std::size_t num_lengths = 0, num_codings = 0;
  std::string_view length, coding;
  std::string connection;
  for (const auto& [name, value] : request_.fields) {
    if (name == "content-length") ++num_lengths, length = value;
    if (name == "transfer-encoding") ++num_codings, coding = value;
    if (name == "connection") connection += "," + value;
  }
  const bool closes = lists(connection, "close");
  request_.keeps_alive = !closes && (!request_.is_http10 || lists(connection, "keep-alive"));
  request_.expects_continue =
      !request_.is_http10 && lower_ascii(request_.field("expect")) == "100-continue";
  if (num_codings > 0) {
    if (num_lengths > 0) return refuse(400, "the body has a length and a transfer coding");
    if (request_.is_http10) return refuse(400, "HTTP/1.0 has no transfer codings");
    if (num_codings > 1 || lower_ascii(coding) != "chunked") {
      return refuse(501, "the transfer coding is not supported; allowed: chunked");
    }
    part_ = Part::ChunkSize;
    state_ = State::Body;
    return;
  }
  if (num_lengths == 0) {
    state_ = State::Whole;
    return;
  }
  const bool has_digits =
      std::all_of(length.begin(), length.end(), [](char c) { return c >= '0' && c <= '9'; });
  const std::optional<std::uint64_t> number = whole_number(length, 10);
  if (num_lengths > 1 || !has_digits || !number) return refuse(400, "the body has no valid length");
  if (*number > limits_.body_bytes) return refuse_body();
  num_left_ = *number;
  part_ = Part::Length;
  state_ = *number == 0 ? State::Whole : State::Body;
}

// ---- the body ----

std::size_t RequestReader::put_body(std::string_view bytes) {
  std::size_t num_taken = 0;
  while (num_taken < bytes.size() && state_ == State::Body) {
    const std::string_view rest = bytes.substr(num_taken);
    const bool is_content = part_ == Part::Length || part_ == Part::Chunk;
    num_taken += is_content ? put_content(rest) : put_line(rest);
  }
  return num_taken;
}

std::size_t RequestReader::put_content(std::string_view bytes) {
  const std::size_t count =
      static_cast<std::size_t>(std::min<std::uint64_t>(num_left_, bytes.size()));
  request_.body.append(bytes.substr(0, count));
  num_left_ -= count;
  if (num_left_ > 0) return count;
  if (part_ == Part::Length) {
    state_ = State::Whole;
  } else {
    part_ = Part::ChunkEnd;
  }
  return count;
}

// The lines between chunks: sizes, the ends of chunks, the trailer.
std::size_t RequestReader::put_line(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!may_follow(bytes[i])) {
      refuse(400, "the body is not chunked as it says");
      return i;
    }
    text_ += bytes[i];
    if (text_.size() > limits_.header_bytes) {
      refuse(400, "a line between the chunks of the body is too long");
      return i + 1;
    }
    if (bytes[i] != '\n') continue;
    text_.resize(text_.size() - 2);
    end_line();
    text_.clear();
    return i + 1;
  }
  return bytes.size();
}

void RequestReader::end_line() {
  switch (part_) {
    case Part::ChunkEnd:
      if (!text_.empty()) return refuse(400, "a chunk of the body is longer than it says");
      part_ = Part::ChunkSize;
      return;
    case Part::ChunkSize: return begin_chunk();
    default: break;
  }
  // The trailer is read and forgotten: none of its fields may change how the request is handled.
  if (text_.empty()) {
    state_ = State::Whole;
    return;
  }
  num_extra_bytes_ += text_.size();
  const std::size_t colon = text_.find(':');
  const bool is_field = colon != text_.npos && is_token(std::string_view(text_).substr(0, colon));
  if (!is_field) return refuse(400, "the trailer of the body is no list of fields");
  if (num_extra_bytes_ > limits_.header_bytes) refuse(431, "the trailer of the body is too large");
}

void RequestReader::begin_chunk() {
  const std::string_view line = text_;
  const std::size_t end = std::min(line.find(';'), line.size());
  // Blanks are allowed before an extension alone.
  std::string_view size = line.substr(0, end);
  if (end < line.size()) size = size.substr(0, size.find_last_not_of(" \t") + 1);
  num_extra_bytes_ += line.size() - size.size();
  const std::optional<std::uint64_t> number = whole_number(size, 16);
  if (!number) return refuse(400, "a chunk of the body has no valid size");
  if (num_extra_bytes_ > limits_.header_bytes) {
    return refuse(400, "the extensions of the body's chunks are too long");
  }
  if (*number > limits_.body_bytes - request_.body.size()) {
    return refuse_body();
  }
  num_left_ = *number;
  part_ = *number == 0 ? Part::Trailer : Part::Chunk;
}

}  // namespace metronome
