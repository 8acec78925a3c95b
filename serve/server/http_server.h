// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 connections for a service: reads requests, writes responses, and limits the effect of a
// client on the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve/server/access.h"
#include "serve/server/http_limits.h"
#include "serve/server/work_queue.h"

namespace metronome {

class Service;

// Runs on the thread that calls run(). Only post() may be called from any thread.
class HttpServer {
 public:
  explicit HttpServer(const HttpLimits& limits, AccessRules rules = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and listens; port 0 selects a free port. Throws UsageError with the address.
  void listen(const std::string& host, std::uint16_t port);
  std::uint16_t port() const;
  // All connections use TLS. The files are PEM. Throws UsageError.
  void use_tls(const std::string& certificate_file, const std::string& key_file);

  // After this call SIGINT, SIGTERM and SIGHUP do not end the process but wait for run().
  void keep_signals();

  // Serves until stop(). `service` outlives the call. `on_signal` is called for each kept signal,
  // `on_tick` several times per second.
  void run(Service& service, std::function<void(int)> on_signal, std::function<void()> on_tick);

  // post() runs `task` on the server's thread, post_background() does work on other threads.
  void post(std::function<void()> task);
  void post_background(Work work);

  // Accepts no more connections and closes the idle ones. The others close after their response.
  void stop_accepting();
  bool has_connections() const;
  std::size_t held_bytes() const;  // see HttpLimits::max_held_bytes
  // Closes the remaining connections and makes run() return.
  void stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace metronome
