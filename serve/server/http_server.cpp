// SPDX-License-Identifier: Apache-2.0
#include "serve/server/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio.hpp>
#include <cerrno>
#include <csignal>
#include <fmt/core.h>
#include <vector>

#include "core/base/command_errors.h"
#include "serve/server/http_connection.h"

namespace metronome {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick(100);     // resolution of deadlines
constexpr std::chrono::milliseconds kGathering(2);  // of connections, while some are refused

// Closes a connection at the least cost: the client gets no end of data, but an error.
void reset(int descriptor) {
  const linger at_once{1, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(descriptor);
}

}  // namespace

class HttpServer::Impl final : public HttpHub, public std::enable_shared_from_this<Impl> {
 public:
  Impl(const HttpLimits& wanted, AccessRules rules)
      : HttpHub(wanted, std::move(rules)), acceptor_(io), signals_(io), ticker_(io), retry_(io) {}

  void post(std::function<void()> task) override { asio::post(io, std::move(task)); }
  void call_at(Steady::time_point time, std::function<void()> task) override {
    const auto timer = std::make_shared<asio::steady_timer>(io, time);
    timer->async_wait([timer, task = std::move(task)](error_code error) {
      if (!error) task();
    });
  }

  void listen(const std::string& host, std::uint16_t port);
  void keep_signals() {
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    struct sigaction hangup {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) signals_.add(SIGHUP);  // nohup ignores it
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void run(Service& to, std::function<void(int)> on_signal, std::function<void()> on_tick);
  void stop_accepting();
  void stop();

  asio::io_context io{1};
  WorkQueue workers;
  std::shared_ptr<TlsContext> tls;

 private:
  void accept();
  void wait_for_signal(const std::function<void(int)>& on_signal);
  void tick(const std::function<void()>& on_tick);
  enum class Taken { Accepted, InPlaceOfAnother, Refused };
  Taken take(int descriptor);
  // Calls `act` with each connection. It may close some.
  template <class Act>
  void for_connections(const Act& act) {
    const std::vector<HttpConnection*> all(connections.begin(), connections.end());
    for (HttpConnection* connection : all) {
      if (connections.count(connection) > 0) act(*connection);
    }
  }

  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer ticker_;
  asio::steady_timer retry_;
  bool is_stopped_ = false;
};

void HttpServer::Impl::listen(const std::string& host, std::uint16_t port) try {
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol());
  acceptor_.set_option(asio::socket_base::reuse_address(true));
  acceptor_.bind(endpoint);
  acceptor_.listen(1024);
  acceptor_.non_blocking(true);
  is_accepting = true;
} catch (const boost::system::system_error& error) {
  throw UsageError(fmt::format(
      "cannot listen on {}:{} ({}); allowed: an address of this machine and a free port", host,
      port, error.code().message()));
}

// Takes the connections that wait, several at a time. A client that opens them without end makes
// the others wait for as long as it takes to refuse its own, so that is done for many at once.
void HttpServer::Impl::accept() {
  constexpr int kMaxAtOnce = 16;  // then the requests of the others have their turn
  acceptor_.async_wait(tcp::acceptor::wait_read, [self = shared_from_this()](error_code error) {
    bool has_failed = static_cast<bool>(error);
    bool has_refused = false;
    bool is_drained = false;
    for (int i = 0; i < kMaxAtOnce && !has_failed && !is_drained && self->acceptor_.is_open();
         ++i) {
      const int descriptor =
          accept4(self->acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
      if (descriptor >= 0) {
        const Taken taken = self->take(descriptor);
        has_refused = has_refused || taken == Taken::Refused;
        // The next must not displace this one before its request is read.
        if (taken == Taken::InPlaceOfAnother) break;
      } else if (errno == EAGAIN) {
        is_drained = true;
      } else {  // the others are errors of a connection that has failed already
        has_failed = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      }
    }
    if (!self->acceptor_.is_open()) return;
    if (!has_failed && !(has_refused && is_drained)) return self->accept();
    self->retry_.expires_after(has_failed ? kTick : kGathering);
    self->retry_.async_wait([self](error_code wait_error) {
      if (!wait_error && self->acceptor_.is_open()) self->accept();
    });
  });
}

// Refuses by few system calls.
HttpServer::Impl::Taken HttpServer::Impl::take(int descriptor) {
  constexpr std::chrono::milliseconds kPause(10);  // between two that give way to their own client
  const Steady::time_point now = Steady::now();
  const auto client = clients.find(client_of(descriptor));
  const bool client_has_most =
      client != clients.end() && client->second.num_connections >= limits.max_client_connections;
  const bool is_full = static_cast<std::int64_t>(connections.size()) >= limits.max_connections;
  bool has_place = !is_full && !client_has_most;
  if (client_has_most && now >= client->second.keeps_connections_until) {
    client->second.keeps_connections_until = now + kPause;
    has_place = spare_connection(&client->second);
  } else if (is_full && !client_has_most) {
    has_place = spare_connection(nullptr);
  }
  if (has_place) {
    HttpSocket taken(io, descriptor, tls);
    std::make_shared<HttpConnection>(shared_from_this(), std::move(taken))->begin();
    return is_full || client_has_most ? Taken::InPlaceOfAnother : Taken::Accepted;
  }
  ++service->metrics().num_refused;
  if (client_has_most && !client->second.may_be_told(now)) {
    reset(descriptor);
    return Taken::Refused;
  }
  if (tls == nullptr) {  // else nothing can be said before the handshake
    const Reply reply = client_has_most
                            ? error_reply(429, "this client has too many connections; try again")
                            : error_reply(503, "too many connections; try again");
    const std::string text = http_head(reply, {}, false, false) + reply.body;
    send(descriptor, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // The kernel resets a connection with unread bytes, and the client may lose the reply.
    std::array<char, 16384> request;
    recv(descriptor, request.data(), request.size(), MSG_DONTWAIT);
  }
  ::close(descriptor);
  return Taken::Refused;
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
    self->for_connections([now](HttpConnection& connection) { connection.check_deadline(now); });
    on_tick();
    if (!self->is_stopped_) self->tick(on_tick);
  });
}

void HttpServer::Impl::run(Service& to, std::function<void(int)> on_signal,
                           std::function<void()> on_tick) {
  service = &to;
  wait_for_signal(on_signal);
  tick(on_tick);
  accept();
  io.run();
  workers.stop();
  service = nullptr;
}

void HttpServer::Impl::stop_accepting() {
  error_code ignored;
  acceptor_.close(ignored);
  is_accepting = false;
  for_connections([](HttpConnection& connection) { connection.close_if_idle(); });
}

void HttpServer::Impl::stop() {
  is_stopped_ = true;
  stop_accepting();
  for_connections([](HttpConnection& connection) { connection.close(); });
  error_code ignored;
  signals_.cancel(ignored);
  ticker_.cancel();
  retry_.cancel();
  workers.stop();
}

HttpServer::HttpServer(const HttpLimits& limits, AccessRules rules)
    : impl_(std::make_shared<Impl>(limits, std::move(rules))) {}
HttpServer::~HttpServer() = default;
void HttpServer::listen(const std::string& host, std::uint16_t port) { impl_->listen(host, port); }
std::uint16_t HttpServer::port() const { return impl_->port(); }
void HttpServer::use_tls(const std::string& certificate_file, const std::string& key_file) {
  impl_->tls = read_tls_context(certificate_file, key_file);
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to connections that may be closed
}
void HttpServer::keep_signals() { impl_->keep_signals(); }
void HttpServer::run(Service& service, std::function<void(int)> on_signal,
                     std::function<void()> on_tick) {
  impl_->run(service, std::move(on_signal), std::move(on_tick));
}
void HttpServer::post(std::function<void()> task) { impl_->post(std::move(task)); }
void HttpServer::post_background(Work work) { impl_->workers.add(std::move(work)); }
void HttpServer::stop_accepting() { impl_->stop_accepting(); }
bool HttpServer::has_connections() const { return !impl_->connections.empty(); }
std::size_t HttpServer::held_bytes() const { return impl_->held_bytes; }
void HttpServer::stop() { impl_->stop(); }

}  // namespace metronome
