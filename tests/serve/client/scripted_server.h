// SPDX-License-Identifier: Apache-2.0
// A server on this machine that answers requests as a test's script says, one thread a connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace metronome::testing {

class ScriptedServer {
 public:
  // The connection that a request came on.
  class Peer {
   public:
    explicit Peer(int socket) : socket_(socket) {}
    void send(std::string_view text) {
      while (!text.empty()) {
        const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
        if (sent <= 0) return hang_up();
        text.remove_prefix(static_cast<std::size_t>(sent));
      }
    }
    void hang_up() { is_open_ = false; }
    // As a process that dies: what was not read yet is answered with a reset.
    void reset() {
      const linger now{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      hang_up();
    }
    bool is_open() const { return is_open_; }

   private:
    int socket_;
    bool is_open_ = true;
  };
  // `number` counts requests from 0, `head` ends with its empty line.
  using Script = std::function<void(std::size_t number, const std::string& head,
                                    const std::string& body, Peer& peer)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, any, size) != 0 || ::listen(listener_, 1024) != 0 ||
        ::getsockname(listener_, any, &size) != 0) {
      throw std::runtime_error("no socket to listen on");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~ScriptedServer() {
    stop();
    for (std::thread& thread : threads_) thread.join();
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  // Takes no connection any more, and cuts those that are there.
  void stop() {
    if (is_stopped_.exchange(true)) return;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    ::close(listener_);
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  }

  std::uint16_t port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::size_t num_requests() const { return num_requests_; }
  std::size_t num_connections() const { return num_connections_; }

 private:
  void accept_all() {
    for (;;) {
      const int socket = ::accept(listener_, nullptr, nullptr);
      if (socket < 0) return;
      ++num_connections_;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
    Peer peer(socket);
    std::string bytes;
    while (peer.is_open()) {
      std::string head;
      std::string body;
      if (!read_request(socket, bytes, head, body)) break;
      script_(num_requests_++, head, body, peer);
    }
    const std::lock_guard lock(mutex_);
    sockets_.remove(socket);
    ::close(socket);
  }

  static bool read_more(int socket, std::string& bytes) {
    char buffer[65536];
    const ssize_t size = ::recv(socket, buffer, sizeof buffer, 0);
    if (size <= 0) return false;
    bytes.append(buffer, static_cast<std::size_t>(size));
    return true;
  }

  static bool read_request(int socket, std::string& bytes, std::string& head, std::string& body) {
    std::size_t end;
    while ((end = bytes.find("\r\n\r\n")) == std::string::npos) {
      if (!read_more(socket, bytes)) return false;
    }
    head = bytes.substr(0, end + 4);
    bytes.erase(0, end + 4);
    const std::size_t length_at = head.find("Content-Length: ");
    const std::size_t length =
        length_at == std::string::npos ? 0 : std::stoul(head.substr(length_at + 16));
    while (bytes.size() < length) {
      if (!read_more(socket, bytes)) return false;
    }
    body = bytes.substr(0, length);
    bytes.erase(0, length);
    return true;
  }

  Script script_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::thread acceptor_;
  std::mutex mutex_;
  std::list<int> sockets_;
  std::list<std::thread> threads_;
  std::atomic<bool> is_stopped_ = false;
  std::atomic<std::size_t> num_requests_ = 0;
  std::atomic<std::size_t> num_connections_ = 0;
};

// ---- What servers send ----

inline std::string chunk_of(std::string_view text) {
  char size[24];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + std::string(text) + "\r\n";
}
inline std::string stream_head(const std::string& framing = "Transfer-Encoding: chunked\r\n") {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n" + framing + "\r\n";
}
inline std::string token_event(const std::string& finish = "null") {
  return "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\","
         "\"choices\":[{\"index\":0,\"text\":\" w\",\"logprobs\":null,\"finish_reason\":" +
         finish + "}],\"usage\":null}\n\n";
}
inline std::string usage_event(int prompt_tokens, int completion_tokens) {
  return "data: {\"id\":\"cmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":" +
         std::to_string(prompt_tokens) +
         ",\"completion_tokens\":" + std::to_string(completion_tokens) +
         ",\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n";
}
inline const std::string kDoneEvent = "data: [DONE]\n\n";
// A whole body of `num_tokens` events.
inline std::vector<std::string> stream_events(int prompt_tokens, int num_tokens) {
  std::vector<std::string> events;
  for (int k = 0; k + 1 < num_tokens; ++k) events.push_back(token_event());
  events.push_back(token_event("\"length\""));
  events.push_back(usage_event(prompt_tokens, num_tokens));
  events.push_back(kDoneEvent);
  return events;
}
inline std::string plain_answer(int status, const std::string& body,
                                const std::string& headers = "") {
  return "HTTP/1.1 " + std::to_string(status) + " Text\r\nContent-Type: application/json\r\n" +
         headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace metronome::testing
