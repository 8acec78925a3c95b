// SPDX-License-Identifier: Apache-2.0
#include "serve/server/http_connection.h"

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <fmt/core.h>
#include <utility>

namespace metronome {
namespace {

namespace http = boost::beast::http;

constexpr std::chrono::steady_clock::time_point kNoDeadline =
    std::chrono::steady_clock::time_point::max();
// The most bytes that are read ahead of the request that is being answered.
constexpr std::size_t kMaxAhead = 16 * 1024;

std::string_view reason_phrase(int status) {
  const boost::beast::string_view text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

// The time as "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7), whatever the locale is.
void append_date(std::string& out) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  gmtime_r(&now, &time);
  char text[96];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[time.tm_wday],
                time.tm_mday, kMonths[time.tm_mon], time.tm_year + 1900, time.tm_hour, time.tm_min,
                time.tm_sec);
  out += text;
}

// The fields of every response, up to its content type.
void append_common_fields(std::string& out) {
  out += "Server: metronome\r\nDate: ";
  append_date(out);
  out += "\r\nContent-Type: ";
}

}  // namespace

std::string http_head(const Reply& reply, std::string_view cors_lines, bool keeps_alive,
                      bool is_http10) {
  std::string head = is_http10 ? "HTTP/1.0 " : "HTTP/1.1 ";
  head += fmt::format("{} {}\r\n", reply.status, reason_phrase(reply.status));
  append_common_fields(head);
  head += reply.content_type + "\r\n" + std::string(cors_lines);
  if (!reply.extra_header.empty()) head += reply.extra_header + "\r\n";
  constexpr int kNoContent = 204;  // never has a length (RFC 9110, 8.6)
  if (reply.status != kNoContent) {
    head += fmt::format("Content-Length: {}\r\n", reply.body.size());
  }
  head += keeps_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

HttpConnection::HttpConnection(std::shared_ptr<HttpHub> hub, HttpSocket socket)
    : hub_(std::move(hub)), socket_(std::move(socket)), use_(&hub_->clients[socket_.client()]) {
  hub_->connections.insert(this);
  ++use_->num_connections;
  ++hub_->service->metrics().num_connections;
}

HttpConnection::~HttpConnection() {
  if (hub_->service != nullptr) --hub_->service->metrics().num_connections;
  hold(0);
  list_in(nullptr);
  hub_->connections.erase(this);
  if (--use_->num_connections == 0) hub_->clients.erase(socket_.client());
}

// ---- what clients share ----

bool ClientUse::may_be_told(std::chrono::steady_clock::time_point now) {
  constexpr std::chrono::milliseconds kEach(10), kMost(1000);
  if (told_until > now + kMost - kEach) return false;
  told_until = std::max(told_until, now) + kEach;
  return true;
}

bool HttpHub::make_room(const ClientUse& client, std::size_t num_bytes) {
  if (held_bytes + num_bytes <= limits.max_held_bytes) return true;
  HttpConnection* most = nullptr;
  for (HttpConnection* connection : connections) {
    if (connection->held_bytes() == 0 || connection->has_response()) continue;
    const auto rank = [](const HttpConnection& c) {
      return std::pair(c.use().held_bytes, c.held_bytes());
    };
    if (most == nullptr || rank(*connection) > rank(*most)) most = connection;
  }
  if (most == nullptr || most->use().held_bytes <= client.held_bytes + num_bytes) return false;
  service->leave(most);
  ++service->metrics().num_refused;
  most->give_up(503, "too many bytes of requests are held; try again");
  return held_bytes + num_bytes <= limits.max_held_bytes;
}

bool HttpHub::spare_connection(ClientUse* only) {
  const auto latest = std::chrono::steady_clock::now() - limits.request_patience;
  const auto candidate = [latest](const ClientUse& client) -> HttpConnection* {
    if (!client.idle.empty()) return client.idle.front();
    if (client.unfinished.empty()) return nullptr;
    HttpConnection* oldest = client.unfinished.front();
    return oldest->request_began() <= latest ? oldest : nullptr;
  };
  const ClientUse* most = only;
  for (auto& [address, client] : clients) {
    const bool has_more = most == nullptr || client.num_connections > most->num_connections;
    if (only == nullptr && has_more && candidate(client) != nullptr) most = &client;
  }
  HttpConnection* spared = most == nullptr ? nullptr : candidate(*most);
  if (spared != nullptr) spared->close();
  return spared != nullptr;
}

void HttpConnection::list_in(std::list<HttpConnection*>* list) {
  if (list_ != nullptr) list_->erase(place_);
  list_ = list;
  if (list_ != nullptr) place_ = list_->insert(list_->end(), this);
}

// Counts the bytes that the connection holds. Returns false if the client would hold too many.
bool HttpConnection::hold(std::size_t num_bytes) {
  if (num_bytes > held_bytes_) {
    const std::size_t added = num_bytes - held_bytes_;
    if (use_->held_bytes + added > hub_->limits.max_held_bytes / 2) return false;
    if (!hub_->make_room(*use_, added)) return false;
  }
  use_->held_bytes += num_bytes - held_bytes_;
  hub_->held_bytes += num_bytes - held_bytes_;
  held_bytes_ = num_bytes;
  return true;
}

void HttpConnection::check_deadline(Steady::time_point now) {
  // While bytes of the next request are pending, nothing waits for more.
  if (is_busy() && !is_waiting_ && socket_.is_half_closed()) return close();
  if (now < deadline_) return;
  if (is_writing_) {
    ++hub_->service->metrics().num_clients_cut;
  } else if (state_ == State::Header || state_ == State::Body) {
    return give_up(408, "the request did not come in time");
  }
  close();
}

void HttpConnection::close_if_idle() {
  keeps_alive_ = false;
  if (state_ == State::Idle || state_ == State::Lingering) close();
}

void HttpConnection::close() {
  if (state_ == State::Closed) return;
  state_ = State::Closed;
  deadline_ = kNoDeadline;
  list_in(nullptr);
  socket_.close();
  hold(0);
  hub_->service->leave(this);
}

// ---- reading ----

// No byte of a request is there yet, so the longer idle timeout applies instead of the header's.
void HttpConnection::read_request() {
  state_ = State::Idle;
  list_in(&use_->idle);
  is_head_ = false;
  target_.clear();
  deadline_ = in(hub_->limits.idle_timeout);
  reader_.emplace(RequestReader::Limits{.header_bytes = hub_->limits.max_header_bytes,
                                        .body_bytes = hub_->limits.max_body_bytes});
  if (pending_.empty()) return wait_for_bytes();
  take(std::exchange(pending_, {}));  // the client pipelines requests
}

void HttpConnection::wait_for_bytes() {
  if (is_waiting_) return;
  is_waiting_ = true;
  socket_.when_readable([self = shared_from_this()](bool has_failed) {
    self->is_waiting_ = false;
    if (self->state_ == State::Closed) return;
    has_failed ? self->close() : self->read_some();
  });
}

// A client that sends much and fast waits until others have had their turn.
void HttpConnection::wait_for_turn() {
  constexpr std::chrono::milliseconds kAhead(4);  // short bodies do not wait
  const Steady::time_point turn = use_->paid_until - kAhead;
  if (turn <= Steady::now()) return wait_for_bytes();
  hub_->call_at(turn, [self = shared_from_this()] {
    if (self->state_ == State::Body) self->wait_for_bytes();
  });
}

// While a response is made, bytes are only read to notice the end of the connection.
void HttpConnection::read_some() {
  const bool is_long = state_ == State::Body || state_ == State::Lingering;
  const std::size_t room = is_long ? hub_->scratch.size() : kMaxAhead;
  const HttpSocket::Moved moved = socket_.read(std::span(hub_->scratch).first(room));
  if (moved.has_ended) return close();
  if (state_ == State::Lingering) {
    num_lingering_bytes_ += moved.num_bytes;
    if (num_lingering_bytes_ > hub_->limits.max_lingering_bytes) return close();
    deadline_ = std::min(in(hub_->limits.linger_timeout), lingers_until_);
    return wait_for_bytes();
  }
  const std::string_view bytes(hub_->scratch.data(), moved.num_bytes);
  const std::chrono::nanoseconds price(static_cast<std::int64_t>(moved.num_bytes) * 1'000'000'000 /
                                       hub_->limits.client_bytes_per_s);
  use_->paid_until = std::max(use_->paid_until, Steady::now()) + price;
  if (!is_busy()) return take(bytes);
  pending_ += bytes;
  if (pending_.size() < kMaxAhead) wait_for_bytes();
}

void HttpConnection::take(std::string_view bytes) {
  while (true) {
    const bool was_body = reader_->state() == RequestReader::State::Body;
    bytes.remove_prefix(reader_->put(bytes));
    switch (reader_->state()) {
      case RequestReader::State::Empty: return wait_for_bytes();
      case RequestReader::State::Header:
        if (state_ == State::Idle) {
          begin_request();
          deadline_ = in(hub_->limits.header_timeout);
        }
        state_ = State::Header;
        return wait_for_bytes();
      case RequestReader::State::Body:
        if (!was_body && !begin_body()) return;
        if (!hold(reader_->num_body_bytes())) return give_up_body();
        if (bytes.empty()) return wait_for_turn();
        break;
      case RequestReader::State::Whole:
        if (!was_body && !begin_body()) return;
        pending_ = bytes;
        if (!hold(reader_->num_body_bytes() + pending_.size())) return give_up_body();
        return handle();
      case RequestReader::State::Refused:
        target_ = reader_->request().target;
        return give_up(reader_->refusal().status, reader_->refusal().message);
    }
  }
}

void HttpConnection::begin_request() {
  request_began_ = Steady::now();
  list_in(&use_->unfinished);
}

// The header is complete. Returns whether the connection goes on.
bool HttpConnection::begin_body() {
  const HttpRequest& request = reader_->request();
  if (state_ == State::Idle) begin_request();
  state_ = State::Body;
  deadline_ = in(hub_->limits.body_timeout);
  is_http10_ = request.is_http10;
  is_head_ = request.method == "HEAD";
  target_ = request.target;
  keeps_alive_ = request.keeps_alive && hub_->is_accepting;
  const std::optional<AccessRefusal> refusal = hub_->access.refusal(request);
  // A page of an allowed origin may see that its key is wrong; other refusals are hidden from it.
  cors_lines_ = refusal && refusal->status != 401 ? "" : hub_->access.cors_lines(request);
  if (refusal) {
    give_up(refusal->status, refusal->message);
    return false;
  }
  if (!request.expects_continue || reader_->state() == RequestReader::State::Whole) return true;
  // The socket's buffer is empty here: the client has read the responses before.
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  if (socket_.write(kContinue).num_bytes == kContinue.size()) return true;
  close();
  return false;
}

void HttpConnection::handle() {
  state_ = State::Answering;
  list_in(nullptr);
  deadline_ = kNoDeadline;
  HttpRequest request = reader_->take();
  if (pending_.size() < kMaxAhead) wait_for_bytes();
  hub_->service->handle(request.method, request.target, std::move(request.body),
                        shared_from_this());
}

// The error is fatal for the connection, as the beginning of the next request is unknown.
void HttpConnection::give_up(int status, const std::string& message) {
  keeps_alive_ = false;
  is_cut_ = true;
  state_ = State::Answering;
  list_in(nullptr);
  pending_.clear();
  reply(error_reply(status, message));
}

void HttpConnection::give_up_body() {
  ++hub_->service->metrics().num_refused;
  const bool is_clients_own =
      use_->held_bytes + hub_->scratch.size() >= hub_->limits.max_held_bytes / 2;
  give_up(is_clients_own ? 429 : 503, is_clients_own
                                          ? "this client's requests hold too many bytes; try again"
                                          : "too many bytes of requests are held; try again");
}

// The answer is written: nothing more is sent. A close now would reset the connection, and a client
// that is still sending would lose the answer.
void HttpConnection::linger() {
  socket_.finish();
  state_ = State::Lingering;
  list_in(&use_->idle);
  lingers_until_ = in(hub_->limits.body_timeout);
  deadline_ = std::min(in(hub_->limits.linger_timeout), lingers_until_);
  wait_for_bytes();
}

// ---- writing ----

void HttpConnection::reply(Reply reply) {
  if (state_ == State::Closed) return;
  hold(pending_.size());  // the body is forgotten
  if (!hold(pending_.size() + reply.body.size())) {
    ++hub_->service->metrics().num_refused;
    keeps_alive_ = false;
    reply = error_reply(503, "too many bytes of answers are not read yet; try again");
  }
  reply = in_form_of(target_, std::move(reply));
  unsent_ += http_head(reply, cors_lines_, keeps_alive_, is_http10_);
  if (!is_head_) unsent_ += reply.body;
  is_whole_ = true;
  write_some();
}

void HttpConnection::begin_stream() {
  if (state_ == State::Closed) return;
  state_ = State::Streaming;
  hold(pending_.size());
  if (is_http10_) keeps_alive_ = false;  // the end of the connection ends the body
  unsent_ += is_http10_ ? "HTTP/1.0 200 OK\r\n" : "HTTP/1.1 200 OK\r\n";
  append_common_fields(unsent_);
  unsent_ += "text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n" + cors_lines_;
  if (!is_http10_) unsent_ += "Transfer-Encoding: chunked\r\n";
  unsent_ += keeps_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void HttpConnection::write(std::string_view bytes) {
  if (state_ == State::Closed || bytes.empty()) return;
  if (is_http10_) {
    unsent_ += bytes;
    return;
  }
  char size[20];
  const char* end = std::to_chars(size, size + sizeof size, bytes.size(), 16).ptr;
  unsent_.append(std::string_view(size, static_cast<std::size_t>(end - size)))
      .append("\r\n")
      .append(bytes)
      .append("\r\n");
}

void HttpConnection::end_stream() {
  if (state_ == State::Closed) return;
  if (!is_http10_) unsent_ += "0\r\n\r\n";
  is_whole_ = true;
}

std::size_t HttpConnection::room() const {
  const std::size_t num_unread = unsent_.size() + in_flight_.size() - num_written_;
  return hub_->limits.max_unread_bytes - std::min(num_unread, hub_->limits.max_unread_bytes);
}

void HttpConnection::flush(bool has_more) {
  if (state_ == State::Closed) return;
  has_more_ = has_more;
  write_some();
}

void HttpConnection::write_some() {
  if (is_writing_ || unsent_.empty()) return;
  in_flight_.clear();
  in_flight_.swap(unsent_);
  num_written_ = 0;
  is_writing_ = true;
  write_on();
}

// Most writes fit into the socket's buffer: they take one system call and no wait.
void HttpConnection::write_on() {
  if (state_ == State::Closed) return;
  while (num_written_ < in_flight_.size()) {
    const HttpSocket::Moved moved =
        socket_.write(std::string_view(in_flight_).substr(num_written_));
    if (moved.has_ended) return close();
    if (moved.num_bytes == 0) {
      deadline_ = in(hub_->limits.write_timeout);
      socket_.when_writable([self = shared_from_this()](bool has_failed) {
        has_failed ? self->close() : self->write_on();
      });
      return;
    }
    num_written_ += moved.num_bytes;
  }
  is_writing_ = false;
  in_flight_.clear();
  num_written_ = 0;
  deadline_ = kNoDeadline;
  if (!unsent_.empty()) return write_some();
  if (is_whole_) return on_response_written();
  if (!std::exchange(has_more_, false)) return;
  // Posted: others have their turn between two parts of a long stream.
  hub_->post([self = shared_from_this()] { self->hub_->service->resume(self.get()); });
}

void HttpConnection::on_response_written() {
  is_whole_ = false;
  hold(pending_.size());
  if (is_cut_) return linger();
  if (!keeps_alive_) {
    socket_.finish();
    return close();
  }
  // Posted, as many requests of one client would otherwise recurse deeply.
  hub_->post([self = shared_from_this()] {
    if (self->state_ == State::Closed) return;
    if (!self->keeps_alive_) return self->close();  // the server is stopping
    self->read_request();
  });
}

}  // namespace metronome
