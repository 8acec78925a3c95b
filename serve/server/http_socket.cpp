#include "serve/server/http_socket.h"

#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/base/command_errors.h"
#include "core/base/error.h"

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

std::string client_of(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint endpoint = socket.remote_endpoint(error);
  if (error) return {};
  if (endpoint.address().is_v4()) return endpoint.address().to_string();
  asio::ip::address_v6 address = endpoint.address().to_v6();
  if (address.is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address).to_string();
  }
  asio::ip::address_v6::bytes_type bytes = address.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), std::uint8_t{0});
  return asio::ip::address_v6(bytes).to_string();
}

}  // namespace

asio::ssl::context tls_context(const std::string& certificate_file, const std::string& key_file) {
  asio::ssl::context context(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context.native_handle(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                                SSL_MODE_RELEASE_BUFFERS);
  error_code error;
  context.use_certificate_chain_file(certificate_file, error);
  if (error) {
    throw UsageError("--ssl-certfile: " + certificate_file + ": " + error.message() +
                     "; allowed: a PEM file with a certificate and those of its issuers");
  }
  context.use_private_key_file(key_file, asio::ssl::context::pem, error);
  if (error) {
    throw UsageError("--ssl-keyfile: " + key_file + ": " + error.message() +
                     "; allowed: a PEM file with the private key of --ssl-certfile");
  }
  return context;
}

HttpSocket::HttpSocket(Socket socket, asio::ssl::context* tls)
    : socket_(std::move(socket)), client_(client_of(socket_)) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  socket_.set_option(asio::socket_base::send_buffer_size(128 * 1024), ignored);
  if (tls == nullptr) return;
  ssl_.reset(SSL_new(tls->native_handle()));
  METRONOME_CHECK(ssl_ != nullptr, "out of memory");
  socket_.non_blocking(true, ignored);
  SSL_set_fd(ssl_.get(), socket_.native_handle());
  SSL_set_accept_state(ssl_.get());
}

HttpSocket::Moved HttpSocket::moved_by_tls(int count, Socket::wait_type& waits_for) const {
  if (count > 0) return {.num_bytes = static_cast<std::size_t>(count)};
  switch (SSL_get_error(ssl_.get(), count)) {
    case SSL_ERROR_WANT_READ: waits_for = Socket::wait_read; return {};
    case SSL_ERROR_WANT_WRITE: waits_for = Socket::wait_write; return {};
    default: return {.has_ended = true};
  }
}

HttpSocket::Moved HttpSocket::read(std::span<char> room) {
  if (ssl_) {
    ERR_clear_error();
    const int count = SSL_read(ssl_.get(), room.data(), static_cast<int>(room.size()));
    read_waits_for_ = Socket::wait_read;
    return moved_by_tls(count, read_waits_for_);
  }
  return moved(recv(socket_.native_handle(), room.data(), room.size(), MSG_DONTWAIT), true);
}

HttpSocket::Moved HttpSocket::write(std::string_view bytes) {
  if (ssl_) {
    constexpr std::size_t kMost = 1 << 20;
    ERR_clear_error();
    const int count =
        SSL_write(ssl_.get(), bytes.data(), static_cast<int>(std::min(bytes.size(), kMost)));
    write_waits_for_ = Socket::wait_write;
    return moved_by_tls(count, write_waits_for_);
  }
  return moved(
      send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT),
      false);
}

bool HttpSocket::is_half_closed() {
  pollfd connection{socket_.native_handle(), POLLRDHUP, 0};
  return poll(&connection, 1, 0) == 1;
}

void HttpSocket::finish() {
  error_code ignored;
  if (ssl_ && SSL_is_init_finished(ssl_.get())) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
  }
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  std::array<char, 65536> rest;
  for (int i = 0; i < 16; ++i) {
    if (recv(socket_.native_handle(), rest.data(), rest.size(), MSG_DONTWAIT) <= 0) break;
  }
}

void HttpSocket::close() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

}  // namespace metronome
