// A connected socket that never blocks: reads and writes as much as is possible now.
#pragma once

#include <sys/types.h>

#include <boost/asio.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace metronome {

class HttpSocket {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  struct Moved {
    std::size_t num_bytes = 0;  // 0: nothing can be moved now
    bool has_ended = false;     // the other side has closed, or an error occurred
  };

  explicit HttpSocket(Socket socket);

  Moved read(std::span<char> room);
  Moved write(std::string_view bytes);

  // Call `handler(error)` once the socket can be read or written.
  template <class Handler>
  void when_readable(Handler handler) {
    socket_.async_wait(Socket::wait_read, std::move(handler));
  }
  template <class Handler>
  void when_writable(Handler handler) {
    socket_.async_wait(Socket::wait_write, std::move(handler));
  }
  void cancel_waits();

  // The address of the client. Clients of an IPv6 network of 64 bits count as one.
  const std::string& client() const { return client_; }
  // Whether the other side has closed, even if bytes of it are still unread.
  bool is_half_closed();
  // Nothing more is sent. Reads the bytes that have come: otherwise the kernel resets the
  // connection, and a client that is still sending loses the response.
  void finish();
  void close();

 private:
  Socket socket_;
  std::string client_;
};

}  // namespace metronome
