// SPDX-License-Identifier: Apache-2.0
#include "serve/server/http_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"

namespace metronome {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

HttpSocket::Moved moved(ssize_t count, bool zero_is_end) {
  if (count > 0) return {.num_bytes = static_cast<std::size_t>(count)};
  if (count == 0) return {.has_ended = zero_is_end};
  return {.has_ended = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR};
}

[[noreturn]] void refuse_pem(const char* option, const std::string& file, const std::string& what,
                             const char* allowed) {
  throw UsageError(std::string(option) + ": " + printable(file) + ": " + what +
                   "; allowed: " + allowed);
}

// OpenSSL would wait for a pipe that nobody writes to.
std::string read_pem(const char* option, const std::string& file, const char* allowed) {
  std::optional<std::string> text = read_file(file);
  if (!text) refuse_pem(option, file, input_problem(), allowed);
  return std::move(*text);
}

}  // namespace

std::string client_of(int descriptor) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, text, sizeof text);
    return text;
  }
  in6_addr address = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, address.s6_addr + 12, text, sizeof text);
    return text;
  }
  std::fill(std::begin(address.s6_addr) + 8, std::end(address.s6_addr), std::uint8_t{0});
  inet_ntop(AF_INET6, &address, text, sizeof text);
  return text;
}

struct TlsContext {
  asio::ssl::context context{asio::ssl::context::tls_server};
};

std::shared_ptr<TlsContext> read_tls_context(const std::string& certificate_file,
                                             const std::string& key_file) {
  constexpr const char* kCertificate = "a PEM file with a certificate and those of its issuers";
  constexpr const char* kKey = "a PEM file with the private key of --ssl-certfile";
  auto made = std::make_shared<TlsContext>();
  asio::ssl::context& context = made->context;
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context.native_handle(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                                SSL_MODE_RELEASE_BUFFERS);
  error_code error;
  const std::string certificate = read_pem("--ssl-certfile", certificate_file, kCertificate);
  context.use_certificate_chain(asio::buffer(certificate), error);
  if (error) refuse_pem("--ssl-certfile", certificate_file, error.message(), kCertificate);
  const std::string key = read_pem("--ssl-keyfile", key_file, kKey);
  context.use_private_key(asio::buffer(key), asio::ssl::context::pem, error);
  if (error) refuse_pem("--ssl-keyfile", key_file, error.message(), kKey);
  return made;
}

struct HttpSocket::Impl {
  struct FreeSsl {
    void operator()(SSL* made) const { SSL_free(made); }
  };

  // The result of a call of OpenSSL, which may have to wait for the opposite direction.
  Moved moved_by_tls(int count, tcp::socket::wait_type& waits_for) const {
    if (count > 0) return {.num_bytes = static_cast<std::size_t>(count)};
    switch (SSL_get_error(ssl.get(), count)) {
      case SSL_ERROR_WANT_READ: waits_for = tcp::socket::wait_read; return {};
      case SSL_ERROR_WANT_WRITE: waits_for = tcp::socket::wait_write; return {};
      default: return {.has_ended = true};
    }
  }

  tcp::socket socket;
  std::shared_ptr<TlsContext> tls = {};
  std::unique_ptr<SSL, FreeSsl> ssl = {};
  tcp::socket::wait_type read_waits_for = tcp::socket::wait_read;
  tcp::socket::wait_type write_waits_for = tcp::socket::wait_write;
};

HttpSocket::HttpSocket(asio::io_context& io, int descriptor, std::shared_ptr<TlsContext> tls)
    : impl_(std::make_unique<Impl>(Impl{.socket = tcp::socket(io), .tls = std::move(tls)})) {
  tcp::socket& socket = impl_->socket;
  socket.assign(tcp::v4(), descriptor);  // the name of the protocol is not looked at
  client_ = client_of(descriptor);
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  socket.set_option(asio::socket_base::send_buffer_size(128 * 1024), ignored);
  if (impl_->tls == nullptr) return;
  impl_->ssl.reset(SSL_new(impl_->tls->context.native_handle()));
  METRONOME_CHECK(impl_->ssl != nullptr, "out of memory");
  socket.non_blocking(true, ignored);
  SSL_set_fd(impl_->ssl.get(), descriptor);
  SSL_set_accept_state(impl_->ssl.get());
}

HttpSocket::HttpSocket(HttpSocket&&) noexcept = default;
HttpSocket::~HttpSocket() = default;

HttpSocket::Moved HttpSocket::read(std::span<char> room) {
  if (SSL* const ssl = impl_->ssl.get()) {
    ERR_clear_error();
    impl_->read_waits_for = tcp::socket::wait_read;
    return impl_->moved_by_tls(SSL_read(ssl, room.data(), static_cast<int>(room.size())),
                               impl_->read_waits_for);
  }
  return moved(recv(impl_->socket.native_handle(), room.data(), room.size(), MSG_DONTWAIT), true);
}

HttpSocket::Moved HttpSocket::write(std::string_view bytes) {
  if (SSL* const ssl = impl_->ssl.get()) {
    constexpr std::size_t kMost = 1 << 20;
    ERR_clear_error();
    impl_->write_waits_for = tcp::socket::wait_write;
    const int size = static_cast<int>(std::min(bytes.size(), kMost));
    return impl_->moved_by_tls(SSL_write(ssl, bytes.data(), size), impl_->write_waits_for);
  }
  return moved(
      send(impl_->socket.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT),
      false);
}

void HttpSocket::when_readable(Handler handler) {
  if (impl_->ssl && SSL_pending(impl_->ssl.get()) > 0) {  // already taken from the socket
    asio::post(impl_->socket.get_executor(), [handler = std::move(handler)] { handler(false); });
    return;
  }
  impl_->socket.async_wait(impl_->read_waits_for, [handler = std::move(handler)](error_code error) {
    handler(bool(error));
  });
}

void HttpSocket::when_writable(Handler handler) {
  impl_->socket.async_wait(impl_->write_waits_for, [handler = std::move(handler)](
                                                       error_code error) { handler(bool(error)); });
}

bool HttpSocket::is_half_closed() {
  pollfd connection{impl_->socket.native_handle(), POLLRDHUP, 0};
  return poll(&connection, 1, 0) == 1;
}

void HttpSocket::finish() {
  error_code ignored;
  if (impl_->ssl && SSL_is_init_finished(impl_->ssl.get())) {
    ERR_clear_error();
    SSL_shutdown(impl_->ssl.get());
  }
  impl_->ssl.reset();
  impl_->read_waits_for = tcp::socket::wait_read;
  impl_->socket.shutdown(tcp::socket::shutdown_send, ignored);
  std::array<char, 65536> rest;
  for (int i = 0; i < 16; ++i) {
    if (recv(impl_->socket.native_handle(), rest.data(), rest.size(), MSG_DONTWAIT) <= 0) break;
  }
}

void HttpSocket::close() {
  error_code ignored;
  impl_->socket.shutdown(tcp::socket::shutdown_both, ignored);
  impl_->socket.close(ignored);
}

}  // namespace metronome
