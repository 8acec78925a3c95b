// A connected socket that never blocks: reads and writes as much as is possible now, with TLS or
// without.
#pragma once

#include <openssl/ssl.h>
#include <sys/types.h>

#include <boost/asio.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace metronome {

// TLS 1.2 and later with a certificate and its key, both in PEM files. Throws UsageError with the
// option.
boost::asio::ssl::context tls_context(const std::string& certificate_file,
                                      const std::string& key_file);

class HttpSocket {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  struct Moved {
    std::size_t num_bytes = 0;  // 0: nothing can be moved now
    bool has_ended = false;     // the other side has closed, or an error occurred
  };

  // `tls` outlives the socket; null: none. The handshake is part of the first reads and writes.
  HttpSocket(Socket socket, boost::asio::ssl::context* tls);

  Moved read(std::span<char> room);
  Moved write(std::string_view bytes);

  // Call `handler(error)` once the socket can be read or written.
  template <class Handler>
  void when_readable(Handler handler) {
    if (ssl_ && SSL_pending(ssl_.get()) > 0) {  // already taken from the socket
      boost::asio::post(socket_.get_executor(), [handler = std::move(handler)]() mutable {
        handler(boost::system::error_code());
      });
      return;
    }
    socket_.async_wait(read_waits_for_, std::move(handler));
  }
  template <class Handler>
  void when_writable(Handler handler) {
    socket_.async_wait(write_waits_for_, std::move(handler));
  }

  // The address of the client. Clients of an IPv6 network of 64 bits count as one.
  const std::string& client() const { return client_; }
  // Whether the other side has closed, even if bytes of it are still unread.
  bool is_half_closed();
  // Nothing more is sent. Reads the bytes that have come: otherwise the kernel resets the
  // connection, and a client that is still sending loses the response.
  void finish();
  void close();

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  // The result of a call of OpenSSL, which may have to wait for the opposite direction.
  Moved moved_by_tls(int count, Socket::wait_type& waits_for) const;

  Socket socket_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  std::string client_;
  Socket::wait_type read_waits_for_ = Socket::wait_read;
  Socket::wait_type write_waits_for_ = Socket::wait_write;
};

}  // namespace metronome
