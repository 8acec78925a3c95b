#include "serve/server/http_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

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

HttpSocket::HttpSocket(Socket socket) : socket_(std::move(socket)), client_(client_of(socket_)) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  socket_.set_option(asio::socket_base::send_buffer_size(128 * 1024), ignored);
}

HttpSocket::Moved HttpSocket::read(std::span<char> room) {
  return moved(recv(socket_.native_handle(), room.data(), room.size(), MSG_DONTWAIT), true);
}

HttpSocket::Moved HttpSocket::write(std::string_view bytes) {
  return moved(
      send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT),
      false);
}

void HttpSocket::cancel_waits() {
  error_code ignored;
  socket_.cancel(ignored);
}

bool HttpSocket::is_half_closed() {
  pollfd connection{socket_.native_handle(), POLLRDHUP, 0};
  return poll(&connection, 1, 0) == 1;
}

void HttpSocket::finish() {
  error_code ignored;
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
