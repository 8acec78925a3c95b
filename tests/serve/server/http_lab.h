// SPDX-License-Identifier: Apache-2.0
// A server on a port of this machine, and clients that send it bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "serve/server/http_server.h"
#include "tests/serve/server/serve_lab.h"

namespace metronome::testing {

inline ServedModel long_model() {
  ServedModel model = byte_model();
  model.max_model_len = 100000;
  return model;
}

// A server on threads of its own.
class HttpBench {
 public:
  explicit HttpBench(const HttpLimits& limits = {}, double speed = 1000, AccessRules rules = {},
                     const std::function<void(HttpServer&)>& prepare = {})
      : simulation_(served_simulation("engine: {max_num_seqs: 8, max_model_len: 100000}\n"
                                      "scheduler: {policy: chunked}\n")),
        model_(long_model()),
        clock_(speed),
        text_(*model_.tokenizer),
        server(limits, std::move(rules)),
        engine_(simulation_, clock_, text_, 1000,
                [this] { server.post([this] { service->handle_events(); }); }) {
    if (prepare) prepare(server);
    server.listen("127.0.0.1", 0);
    service.emplace(
        model_, engine_, clock_, simulation_.setup.kv_cache, ServiceOptions{.version = "1"},
        [this](Work work) { server.post_background(std::move(work)); },
        [this](Service::Task task) { server.post(std::move(task)); });
    engine_thread_ = std::thread([this] { engine_.serve({}); });
    server_thread_ = std::thread([this] {
      server.run(
          *service, [](int) {}, [] {});
    });
  }
  ~HttpBench() {
    on_server([this] {
      service->abort_all();
      server.stop();
      return 0;
    });
    server_thread_.join();
    engine_.close();
    engine_thread_.join();
  }

  // Calls `look` on the server's thread, and returns what it returns.
  template <class Look>
  std::invoke_result_t<Look> on_server(Look look) {
    std::promise<std::invoke_result_t<Look>> promise;
    server.post([&] { promise.set_value(look()); });
    return promise.get_future().get();
  }
  template <class Done>
  bool wait_until(const Done& done) {
    for (int tries = 0; tries < 30000; ++tries) {
      if (on_server(done)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  bool wait_idle() {
    return wait_until([this] { return service->is_idle(); });
  }

 private:
  Simulation simulation_;
  ServedModel model_;
  ServeClock clock_;
  PlausibleText text_;

 public:
  HttpServer server;

 private:
  LiveEngine engine_;

 public:
  std::optional<Service> service;

 private:
  std::thread engine_thread_, server_thread_;
};

inline int occurrences(std::string_view text, std::string_view part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

// A client that sends bytes and keeps what comes.
class Wire {
 public:
  explicit Wire(const HttpBench& bench, int receive_buffer = 0) {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(bench.server.port());
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
  }
  ~Wire() { close(); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  // As a process that is killed: the connection is reset.
  void reset() {
    const linger at_once{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  // Reads until `text` has come `count` times or the connection ends. False in that case, or when
  // nothing comes for long.
  bool read_until(std::string_view text, int count = 1) {
    while (occurrences(received, text) < count) {
      if (!read_some()) return false;
    }
    return true;
  }
  bool read_to_end() {
    while (read_some()) {
    }
    return has_ended;
  }

  // Reads once. False: the connection has ended, or nothing has come for a minute.
  bool read_some() {
    pollfd ready{socket_, POLLIN, 0};
    if (poll(&ready, 1, 60'000) != 1) return false;
    char bytes[65536];
    const ssize_t count = recv(socket_, bytes, sizeof bytes, 0);
    has_ended = count <= 0;
    if (count > 0) received.append(bytes, static_cast<std::size_t>(count));
    return count > 0;
  }

  std::string received;
  bool has_ended = false;

 private:
  int socket_ = -1;
};

inline std::string post(const std::string& body, const std::string& headers = {},
                        const std::string& target = "/v1/completions") {
  return "POST " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
inline std::string completion(const std::string& fields) {
  return post(R"({"prompt": "Hi", "ignore_eos": true, )" + fields + "}");
}

inline int status_of(const Wire& wire) {
  return wire.received.size() < 12 ? 0 : std::stoi(wire.received.substr(9, 3));
}

}  // namespace metronome::testing
