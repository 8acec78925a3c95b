// SPDX-License-Identifier: Apache-2.0
// Limits that keep one client from taking the server from the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace metronome {

struct HttpLimits {
  std::size_t max_header_bytes = 16 * 1024;
  std::size_t max_body_bytes = 8 * 1024 * 1024;
  std::int64_t max_connections = 4096;
  std::int64_t max_client_connections = 2048;
  // Of bodies that are not answered yet and of answers that are not read yet, streams excepted. A
  // client holds at most half of it.
  std::size_t max_held_bytes = 64 * 1024 * 1024;
  // Of bodies: a client that sends faster is read at this pace, so that the others have their turn.
  std::int64_t client_bytes_per_s = 64 * 1024 * 1024;
  // Unread bytes of a stream, in addition to its socket's buffer. Its other tokens wait.
  std::size_t max_unread_bytes = 64 * 1024;
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte of the header to its end
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between requests of a connection
  std::chrono::milliseconds write_timeout{30'000};  // without progress in a write
  // After an answer to a request that is not whole, its other bytes are read and forgotten, so that
  // a client that sends all before it reads gets the answer. The time is that without a byte; in
  // all it is body_timeout, as for a body that is taken.
  std::chrono::milliseconds linger_timeout{5'000};
  std::uint64_t max_lingering_bytes = std::uint64_t{2} << 30;
  // A request that is not complete after this time may give way to a new connection.
  std::chrono::milliseconds request_patience{1'000};
};

}  // namespace metronome
