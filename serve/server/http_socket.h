// SPDX-License-Identifier: Apache-2.0
// A connected socket that never blocks: reads and writes as much as is possible now, with TLS or
// without.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace boost::asio {
class io_context;
}

namespace metronome {

// The certificate and key of a server.
struct TlsContext;

// TLS 1.2 and later. Both files are PEM. Throws UsageError with the option.
std::shared_ptr<TlsContext> read_tls_context(const std::string& certificate_file,
                                             const std::string& key_file);

// The address at the other end of a connection. Clients of an IPv6 network of 64 bits count as one.
std::string client_of(int descriptor);

class HttpSocket {
 public:
  struct Moved {
    std::size_t num_bytes = 0;  // 0: nothing can be moved now
    bool has_ended = false;     // the other side has closed, or an error occurred
  };
  // `has_failed`: the socket was closed, or cannot be waited for.
  using Handler = std::function<void(bool has_failed)>;

  // Takes a connected descriptor. `tls`: null: none. The handshake is part of the first reads and
  // writes. `io` outlives the socket.
  HttpSocket(boost::asio::io_context& io, int descriptor, std::shared_ptr<TlsContext> tls);
  HttpSocket(HttpSocket&&) noexcept;
  ~HttpSocket();

  Moved read(std::span<char> room);
  Moved write(std::string_view bytes);

  // Call `handler` once the socket can be read or written.
  void when_readable(Handler handler);
  void when_writable(Handler handler);

  // As of client_of().
  const std::string& client() const { return client_; }
  // Whether the other side has closed, even if bytes of it are still unread.
  bool is_half_closed();
  // Nothing more is sent. Reads the bytes that have come: otherwise the kernel resets the
  // connection, and a client that is still sending loses the response. Later reads give bytes as
  // they come, under TLS too: they are worth counting alone.
  void finish();
  void close();

 private:
  struct Impl;

  std::unique_ptr<Impl> impl_;
  std::string client_;
};

}  // namespace metronome
