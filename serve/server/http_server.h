// HTTP/1.1 connections for a service: reads requests, writes responses, and limits the effect of a
// client on the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74 needs it before Asio

namespace metronome {

class Service;

struct HttpLimits {
  std::size_t max_header_bytes = 16 * 1024;
  std::size_t max_body_bytes = 8 * 1024 * 1024;
  std::int64_t max_connections = 4096;
  // Limit of unread bytes per client, in addition to its socket's buffer. Above it, a client is cut
  // off if it reads nothing for a second, or at sixteen times the limit.
  std::size_t max_unread_bytes = 1024 * 1024;
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte of the header to its end
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between requests of a connection
  std::chrono::milliseconds write_timeout{30'000};  // without progress in a write
};

// Runs on the thread that calls run(). Only post() may be called from any thread.
class HttpServer {
 public:
  explicit HttpServer(const HttpLimits& limits);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and listens; port 0 selects a free port. Throws UsageError with the address.
  void listen(const std::string& host, std::uint16_t port);
  std::uint16_t port() const;

  // After this call SIGINT, SIGTERM and SIGHUP do not end the process but wait for run().
  void keep_signals();

  // Serves until stop(). `service` outlives the call. `on_signal` is called for each kept signal,
  // `on_tick` several times per second.
  void run(Service& service, std::function<void(int)> on_signal, std::function<void()> on_tick);

  // post() runs `task` on the server's thread, post_background() on a thread for longer work.
  void post(std::function<void()> task);
  void post_background(std::function<void()> task);

  // Accepts no more connections and closes the idle ones. The others close after their response.
  void stop_accepting();
  bool has_connections() const;
  // Closes the remaining connections and makes run() return.
  void stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace metronome
