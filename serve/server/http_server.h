// HTTP/1.1 connections around a service: reading requests, writing responses, and every limit on
// what a client may do to the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74 needs it included before Asio

namespace metronome {

class Service;

struct HttpLimits {
  std::size_t max_header_bytes = 16 * 1024;
  std::size_t max_body_bytes = 8 * 1024 * 1024;
  std::int64_t max_connections = 4096;
  // What a client may leave unread, beside what its socket holds, before it is cut off: when it has
  // read nothing for a second, or at sixteen times as much.
  std::size_t max_unread_bytes = 1024 * 1024;
  std::chrono::milliseconds header_timeout{10'000};  // from its first byte to its end
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between requests of one connection
  std::chrono::milliseconds write_timeout{30'000};  // a write without any progress
};

// Runs on the thread that calls run(). post() alone may be called from any thread.
class HttpServer {
 public:
  explicit HttpServer(const HttpLimits& limits);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and listens; port 0 takes any. Throws UsageError naming the address.
  void listen(const std::string& host, std::uint16_t port);
  std::uint16_t port() const;

  // From now on SIGINT, SIGTERM and SIGHUP do not end the process but wait for run().
  void keep_signals();

  // Serves until stop(). `service` outlives the call. `on_signal` is called for each signal kept,
  // `on_tick` several times a second.
  void run(Service& service, std::function<void(int)> on_signal, std::function<void()> on_tick);

  // Runs `task` on the server's thread, or on one for work that takes longer.
  void post(std::function<void()> task);
  void post_background(std::function<void()> task);

  // Takes no more connections and ends those that have nothing to say. Others end with their
  // response.
  void stop_accepting();
  bool has_connections() const;
  // Closes what is left and makes run() return.
  void stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace metronome
