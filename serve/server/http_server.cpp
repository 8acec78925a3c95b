#include "serve/server/http_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <unordered_set>

#include "core/base/command_errors.h"
#include "serve/server/service.h"

namespace metronome {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;
using Steady = std::chrono::steady_clock;

constexpr Steady::time_point kNoDeadline = Steady::time_point::max();
constexpr std::chrono::milliseconds kTick(100);  // resolution of deadlines
// Limits for a client with too much unread data. It is cut off after this time without reading, or
// at this many times the limit.
constexpr std::chrono::seconds kPatience(1);
constexpr std::size_t kHardFactor = 16;

std::string_view reason_phrase(int status) {
  const beast::string_view text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

// Allows web pages of any origin to use the server, as vLLM does.
constexpr std::string_view kCommonHeaders =
    "Server: metronome\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: ";

std::string head_of(const Reply& reply, bool keeps_alive, bool is_http10) {
  std::string head = is_http10 ? "HTTP/1.0 " : "HTTP/1.1 ";
  head += std::to_string(reply.status) + " " + std::string(reason_phrase(reply.status)) + "\r\n";
  head += std::string(kCommonHeaders) + reply.content_type + "\r\n";
  if (!reply.extra_header.empty()) head += reply.extra_header + "\r\n";
  head += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
  head += keeps_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(const HttpLimits& limits)
      : limits_(limits), acceptor_(io_), signals_(io_), ticker_(io_), retry_(io_) {}

  void listen(const std::string& host, std::uint16_t port);
  void keep_signals() {
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    struct sigaction hangup {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) signals_.add(SIGHUP);  // nohup ignores it
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void run(Service& service, std::function<void(int)> on_signal, std::function<void()> on_tick);
  void stop_accepting();
  void stop();
  bool is_stopped() const { return is_stopped_; }

  class Session;

  HttpLimits limits_;
  asio::io_context io_{1};
  asio::thread_pool workers_{1};
  Service* service_ = nullptr;
  std::unordered_set<Session*> sessions_;

 private:
  void accept();
  void wait_for_signal(const std::function<void(int)>& on_signal);
  void tick(const std::function<void()>& on_tick);
  void turn_away(tcp::socket socket);

  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer ticker_;
  asio::steady_timer retry_;
  std::atomic<bool> is_stopped_ = false;  // read by background tasks
};

// One connection. The object lives while an operation on its socket is pending or the service makes
// its response. close() ends the pending operations.
class HttpServer::Impl::Session final : public Client,
                                        public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Impl> server, tcp::socket socket)
      : server_(std::move(server)), socket_(std::move(socket)) {
    server_->sessions_.insert(this);
    ++server_->service_->metrics().num_connections;
  }
  ~Session() override {
    if (server_->service_ != nullptr) --server_->service_->metrics().num_connections;
    server_->sessions_.erase(this);
  }

  void begin() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    socket_.set_option(asio::socket_base::send_buffer_size(128 * 1024), ignored);
    read_request();
  }

  // Overrides of Client.
  void reply(Reply reply) override;
  void begin_stream() override;
  void write(std::string_view bytes) override;
  void end_stream() override;
  void flush() override;

  void check_deadline(Steady::time_point now) {
    const bool is_busy = state_ == State::Answering || state_ == State::Streaming;
    if (is_busy && !is_watching_ && has_left()) return close();
    if (now < deadline_) return;
    if (is_writing_) {
      ++server_->service_->metrics().num_clients_cut;
    } else if (state_ == State::Header || state_ == State::Body) {
      return give_up(408, "the request did not come in time");
    }
    close();
  }
  // Closes the connection if it is between two requests.
  void close_if_idle() {
    keeps_alive_ = false;
    if (state_ == State::Idle) close();
  }
  void close();

 private:
  enum class State { Idle, Header, Body, Answering, Streaming, Closed };

  static Steady::time_point in(std::chrono::milliseconds time) { return Steady::now() + time; }
  void read_request();
  void wait_for_request();
  void read_first_bytes();
  void skip_line_breaks();
  void read_header();
  void on_header(error_code error);
  void read_body();
  void on_body(error_code error);
  void handle();
  void on_read_error(error_code error);
  void give_up(int status, const char* message);
  void watch();
  void on_readable();
  bool has_left();
  void write_some();
  void on_written(error_code error, std::size_t num_bytes);
  void on_response_written();

  std::shared_ptr<Impl> server_;
  tcp::socket socket_;
  beast::flat_buffer buffer_{256 * 1024};
  std::optional<http::request_parser<http::string_body>> parser_;
  State state_ = State::Idle;
  Steady::time_point deadline_ = kNoDeadline;
  bool keeps_alive_ = true;
  bool is_http10_ = false;
  Steady::time_point last_progress_ = Steady::now();  // of writing
  bool is_head_ = false;                              // method HEAD: the response has no body
  bool is_watching_ = false;
  bool is_whole_ = false;  // the response's last byte is in unsent_ or in_flight_
  bool is_writing_ = false;
  std::string unsent_;     // added during a write
  std::string in_flight_;  // being written
  std::size_t num_written_ = 0;
};

// ---- reading ----

// No byte of a request is there yet, so the longer idle timeout applies instead of the header's.
void HttpServer::Impl::Session::read_request() {
  state_ = State::Idle;
  is_head_ = false;
  deadline_ = in(server_->limits_.idle_timeout);
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(server_->limits_.max_header_bytes));
  parser_->body_limit(server_->limits_.max_body_bytes);
  skip_line_breaks();
  if (buffer_.size() > 0) return read_header();  // the client pipelines requests
  wait_for_request();
}

void HttpServer::Impl::Session::wait_for_request() {
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    if (self->state_ != State::Idle) return;
    if (error) return self->close();
    self->read_first_bytes();
  });
}

// Skips line breaks before a request (RFC 9112, 2.2): some clients send one after a body.
void HttpServer::Impl::Session::read_first_bytes() {
  constexpr std::size_t kBytes = 4096;
  const auto room = buffer_.prepare(kBytes);
  const ssize_t count = recv(socket_.native_handle(), room.data(), kBytes, MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return close();
  buffer_.commit(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  skip_line_breaks();
  buffer_.size() > 0 ? read_header() : wait_for_request();
}

void HttpServer::Impl::Session::skip_line_breaks() {
  const auto* bytes = static_cast<const char*>(buffer_.data().data());
  std::size_t count = 0;
  while (count < buffer_.size() && (bytes[count] == '\r' || bytes[count] == '\n')) ++count;
  buffer_.consume(count);
}

void HttpServer::Impl::Session::read_header() {
  state_ = State::Header;
  deadline_ = in(server_->limits_.header_timeout);
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](error_code error, std::size_t) { self->on_header(error); });
}

void HttpServer::Impl::Session::on_header(error_code error) {
  if (state_ != State::Header) return;
  if (error) return on_read_error(error);
  const auto& request = parser_->get();
  is_http10_ = request.version() < 11;
  is_head_ = request.method() == http::verb::head;
  keeps_alive_ = request.keep_alive() && server_->acceptor_.is_open();
  const auto length = parser_->content_length();
  if (length && *length > server_->limits_.max_body_bytes) {
    return on_read_error(http::error::body_limit);
  }
  if (beast::iequals(request[http::field::expect], "100-continue") && !parser_->is_done()) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(socket_, asio::buffer(kContinue),
                      [self = shared_from_this()](error_code write_error, std::size_t) {
                        if (self->state_ != State::Header) return;
                        write_error ? self->close() : self->read_body();
                      });
    return;
  }
  read_body();
}

void HttpServer::Impl::Session::read_body() {
  state_ = State::Body;
  deadline_ = in(server_->limits_.body_timeout);
  http::async_read(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](error_code error, std::size_t) { self->on_body(error); });
}

void HttpServer::Impl::Session::on_body(error_code error) {
  if (state_ != State::Body) return;
  if (error) return on_read_error(error);
  handle();
}

void HttpServer::Impl::Session::handle() {
  state_ = State::Answering;
  deadline_ = kNoDeadline;
  auto request = parser_->release();
  const std::string method(request.method_string());
  const std::string target(request.target());
  watch();
  server_->service_->handle(method, target, std::move(request.body()), shared_from_this());
}

void HttpServer::Impl::Session::on_read_error(error_code error) {
  if (error == http::error::body_limit) {
    return give_up(413, "the body is too large");
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return give_up(431, "the header is too large");
  }
  const bool is_malformed =
      error.category() == http::make_error_code(http::error::bad_value).category();
  if (!is_malformed || error == http::error::end_of_stream ||
      error == http::error::partial_message) {
    return close();
  }
  give_up(400, "the request is not HTTP/1.1");
}

// The error is fatal for the connection, as the beginning of the next request is unknown.
void HttpServer::Impl::Session::give_up(int status, const char* message) {
  keeps_alive_ = false;
  state_ = State::Answering;
  reply({.status = status, .body = error_json(status, message)});
}

// ---- the client disconnects ----

// While a response is made nothing is read. This waits for the end of the connection.
void HttpServer::Impl::Session::watch() {
  if (is_watching_ || buffer_.size() > 0) return;
  is_watching_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    self->is_watching_ = false;
    if (!error) self->on_readable();
  });
}

void HttpServer::Impl::Session::on_readable() {
  if (state_ != State::Answering && state_ != State::Streaming) return;
  char byte = 0;
  const ssize_t count = recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count > 0) return;  // the next request came early: it waits for this one
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return watch();
  close();
}

// While bytes of the next request are pending, waiting for more would return at once, repeatedly.
bool HttpServer::Impl::Session::has_left() {
  pollfd connection{socket_.native_handle(), POLLRDHUP, 0};
  return poll(&connection, 1, 0) == 1;
}

void HttpServer::Impl::Session::close() {
  if (state_ == State::Closed) return;
  state_ = State::Closed;
  deadline_ = kNoDeadline;
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  server_->service_->leave(this);
}

// ---- writing ----

void HttpServer::Impl::Session::reply(Reply reply) {
  if (state_ == State::Closed) return;
  unsent_ += head_of(reply, keeps_alive_, is_http10_);
  if (!is_head_) unsent_ += reply.body;
  is_whole_ = true;
  write_some();
}

void HttpServer::Impl::Session::begin_stream() {
  if (state_ == State::Closed) return;
  state_ = State::Streaming;
  if (is_http10_) keeps_alive_ = false;  // the end of the connection ends the body
  unsent_ += is_http10_ ? "HTTP/1.0 200 OK\r\n" : "HTTP/1.1 200 OK\r\n";
  unsent_ += kCommonHeaders;
  unsent_ += "text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n";
  if (!is_http10_) unsent_ += "Transfer-Encoding: chunked\r\n";
  unsent_ += keeps_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void HttpServer::Impl::Session::write(std::string_view bytes) {
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

void HttpServer::Impl::Session::end_stream() {
  if (state_ == State::Closed) return;
  if (!is_http10_) unsent_ += "0\r\n\r\n";
  is_whole_ = true;
}

void HttpServer::Impl::Session::flush() {
  if (state_ == State::Closed) return;
  write_some();
  // A server may be faster than any client, for example a simulated one. That does not make the
  // client slow.
  const std::size_t limit = server_->limits_.max_unread_bytes;
  if (unsent_.size() <= limit) return;
  const bool is_stuck = Steady::now() - last_progress_ > kPatience;
  if (!is_stuck && unsent_.size() <= kHardFactor * limit) return;
  ++server_->service_->metrics().num_clients_cut;
  close();
}

void HttpServer::Impl::Session::write_some() {
  if (is_writing_ || unsent_.empty()) return;
  in_flight_.clear();
  in_flight_.swap(unsent_);
  num_written_ = 0;
  is_writing_ = true;
  on_written({}, 0);
}

// Most writes fit into the socket's buffer: they take one system call and no wait.
void HttpServer::Impl::Session::on_written(error_code error, std::size_t num_bytes) {
  if (state_ == State::Closed) return;
  num_written_ += num_bytes;
  while (!error && num_written_ < in_flight_.size()) {
    const ssize_t count = send(socket_.native_handle(), in_flight_.data() + num_written_,
                               in_flight_.size() - num_written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      num_written_ += static_cast<std::size_t>(count);
      last_progress_ = Steady::now();
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      deadline_ = in(server_->limits_.write_timeout);
      socket_.async_wait(
          tcp::socket::wait_write,
          [self = shared_from_this()](error_code wait_error) { self->on_written(wait_error, 0); });
      return;
    } else if (count < 0 && errno != EINTR) {
      error = error_code(errno, boost::system::system_category());
    }
  }
  if (error) return close();
  is_writing_ = false;
  deadline_ = kNoDeadline;
  if (!unsent_.empty()) return write_some();
  if (is_whole_) on_response_written();
}

void HttpServer::Impl::Session::on_response_written() {
  is_whole_ = false;
  if (!keeps_alive_) {
    // Reads the remaining bytes before closing. Otherwise the kernel resets the connection, and a
    // client that is still sending loses the response.
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    std::array<char, 65536> rest;
    for (int i = 0; i < 16; ++i) {
      if (recv(socket_.native_handle(), rest.data(), rest.size(), MSG_DONTWAIT) <= 0) break;
    }
    return close();
  }
  // Posted, as many requests of one client would otherwise recurse deeply.
  asio::post(server_->io_, [self = shared_from_this()] {
    if (self->state_ == State::Closed) return;
    if (!self->keeps_alive_) return self->close();  // the server is stopping
    if (self->is_watching_) {
      error_code ignored;
      self->socket_.cancel(ignored);
    }
    self->read_request();
  });
}

// ---- the listener ----

void HttpServer::Impl::listen(const std::string& host, std::uint16_t port) try {
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(host, std::to_string(port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol());
  acceptor_.set_option(asio::socket_base::reuse_address(true));
  acceptor_.bind(endpoint);
  acceptor_.listen(1024);
} catch (const boost::system::system_error& error) {
  throw UsageError("cannot listen on " + host + ":" + std::to_string(port) + " (" +
                   error.code().message() +
                   "); allowed: an address of this machine and a free port");
}

void HttpServer::Impl::accept() {
  acceptor_.async_accept([self = shared_from_this()](error_code error, tcp::socket socket) {
    if (!self->acceptor_.is_open()) return;
    if (error) {  // no descriptor left, or the client has disconnected
      self->retry_.expires_after(kTick);
      self->retry_.async_wait([self](error_code wait_error) {
        if (!wait_error && self->acceptor_.is_open()) self->accept();
      });
      return;
    }
    if (static_cast<std::int64_t>(self->sessions_.size()) >= self->limits_.max_connections) {
      self->turn_away(std::move(socket));
    } else {
      std::make_shared<Session>(self, std::move(socket))->begin();
    }
    self->accept();
  });
}

void HttpServer::Impl::turn_away(tcp::socket socket) {
  ++service_->metrics().num_refused;
  const Reply reply{.status = 503,
                    .body = error_json(503, "too many connections; try again"),
                    .extra_header = "Retry-After: 1"};
  const std::string text = head_of(reply, false, false) + reply.body;
  send(socket.native_handle(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  error_code ignored;
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void HttpServer::Impl::wait_for_signal(const std::function<void(int)>& on_signal) {
  signals_.async_wait([self = shared_from_this(), on_signal](error_code error, int signal) {
    if (error) return;
    on_signal(signal);
    if (!self->is_stopped_) self->wait_for_signal(on_signal);
  });
}

void HttpServer::Impl::tick(const std::function<void()>& on_tick) {
  ticker_.expires_after(kTick);
  ticker_.async_wait([self = shared_from_this(), on_tick](error_code error) {
    if (error) return;
    const Steady::time_point now = Steady::now();
    const std::vector<Session*> sessions(self->sessions_.begin(), self->sessions_.end());
    for (Session* session : sessions) {
      if (self->sessions_.count(session) > 0) session->check_deadline(now);
    }
    on_tick();
    if (!self->is_stopped_) self->tick(on_tick);
  });
}

void HttpServer::Impl::run(Service& service, std::function<void(int)> on_signal,
                           std::function<void()> on_tick) {
  service_ = &service;
  wait_for_signal(on_signal);
  tick(on_tick);
  accept();
  io_.run();
  workers_.join();
  service_ = nullptr;
}

void HttpServer::Impl::stop_accepting() {
  error_code ignored;
  acceptor_.close(ignored);
  const std::vector<Session*> sessions(sessions_.begin(), sessions_.end());
  for (Session* session : sessions) {
    if (sessions_.count(session) > 0) session->close_if_idle();
  }
}

void HttpServer::Impl::stop() {
  is_stopped_ = true;
  stop_accepting();
  const std::vector<Session*> sessions(sessions_.begin(), sessions_.end());
  for (Session* session : sessions) {
    if (sessions_.count(session) > 0) session->close();
  }
  error_code ignored;
  signals_.cancel(ignored);
  ticker_.cancel();
  retry_.cancel();
  workers_.join();
}

HttpServer::HttpServer(const HttpLimits& limits) : impl_(std::make_shared<Impl>(limits)) {}
HttpServer::~HttpServer() = default;
void HttpServer::listen(const std::string& host, std::uint16_t port) { impl_->listen(host, port); }
std::uint16_t HttpServer::port() const { return impl_->port(); }
void HttpServer::keep_signals() { impl_->keep_signals(); }
void HttpServer::run(Service& service, std::function<void(int)> on_signal,
                     std::function<void()> on_tick) {
  impl_->run(service, std::move(on_signal), std::move(on_tick));
}
void HttpServer::post(std::function<void()> task) { asio::post(impl_->io_, std::move(task)); }
void HttpServer::post_background(std::function<void()> task) {
  asio::post(impl_->workers_, [impl = impl_.get(), task = std::move(task)] {
    if (!impl->is_stopped()) task();
  });
}
void HttpServer::stop_accepting() { impl_->stop_accepting(); }
bool HttpServer::has_connections() const { return !impl_->sessions_.empty(); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace metronome
