// SPDX-License-Identifier: Apache-2.0
// One connection of a client: reads its requests one after the other, and writes the responses.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "serve/server/access.h"
#include "serve/server/http_limits.h"
#include "serve/server/http_socket.h"
#include "serve/server/request_reader.h"
#include "serve/server/service.h"

namespace metronome {

class HttpConnection;

// The share of the server that a client (an address) holds.
struct ClientUse {
  std::int64_t num_connections = 0;
  std::size_t held_bytes = 0;
  // Connections between two requests, idle for longest first, and with an unfinished request, of
  // which the oldest is first.
  std::list<HttpConnection*> idle = {}, unfinished = {};
  // Until then no connection of the client is closed for a new one of its own.
  std::chrono::steady_clock::time_point keeps_connections_until = {};
  // Refused connections are told why, up to 100 at once and 100 a second; the others are reset.
  // Returns whether to tell one at `now`.
  bool may_be_told(std::chrono::steady_clock::time_point now);
  std::chrono::steady_clock::time_point told_until = {};
  // When what was read of bodies is paid for, at HttpLimits::client_bytes_per_s.
  std::chrono::steady_clock::time_point paid_until = {};
};

// State that the connections of a server share. Used on the server's thread.
struct HttpHub {
  HttpHub(const HttpLimits& wanted, AccessRules rules) : limits(wanted), access(std::move(rules)) {}
  virtual ~HttpHub() = default;

  // Call `task` on the server's thread, soon or at a time.
  virtual void post(std::function<void()> task) = 0;
  virtual void call_at(std::chrono::steady_clock::time_point time, std::function<void()> task) = 0;

  // Makes room for bytes of a connection by giving up a request of the client that holds most, if
  // that is more than this client would hold. Returns whether there is room.
  bool make_room(const ClientUse& client, std::size_t num_bytes);
  // Closes the connection that can best be spared: of the client with the most connections, idle
  // for longest, or with an unfinished request. False: every connection is at work. `only`: of this
  // client.
  bool spare_connection(ClientUse* only);

  HttpLimits limits;
  Access access;
  Service* service = nullptr;
  bool is_accepting = false;
  std::unordered_set<HttpConnection*> connections;
  std::unordered_map<std::string, ClientUse> clients;  // by address; those with connections
  std::size_t held_bytes = 0;                          // of all clients
  std::string scratch = std::string(64 * 1024, '\0');  // bytes that were just read
};

// The bytes of a response's header. `cors_lines`: as of Access.
std::string http_head(const Reply& reply, std::string_view cors_lines, bool keeps_alive,
                      bool is_http10);

// The object lives while an operation on its socket is pending or the service makes its response.
// close() ends the pending operations.
class HttpConnection final : public Client, public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpHub> hub, HttpSocket socket);
  ~HttpConnection() override;

  void begin() { read_request(); }

  // Overrides of Client.
  const std::string& address() const override { return socket_.client(); }
  void forget_body() override { hold(pending_.size()); }
  void reply(Reply reply) override;
  void begin_stream() override;
  void write(std::string_view bytes) override;
  void end_stream() override;
  std::size_t room() const override;
  void flush(bool has_more) override;

  const ClientUse& use() const { return *use_; }
  std::size_t held_bytes() const { return held_bytes_; }
  std::chrono::steady_clock::time_point request_began() const { return request_began_; }
  // Ends the request, of which nothing is written yet, with an error.
  void give_up(int status, const std::string& message);
  bool has_response() const { return is_whole_ || state_ == State::Streaming; }

  void check_deadline(std::chrono::steady_clock::time_point now);
  // Closes the connection if it is between two requests, else after its response.
  void close_if_idle();
  void close();

 private:
  enum class State { Idle, Header, Body, Answering, Streaming, Lingering, Closed };
  using Steady = std::chrono::steady_clock;

  static Steady::time_point in(std::chrono::milliseconds time) { return Steady::now() + time; }
  bool is_busy() const { return state_ == State::Answering || state_ == State::Streaming; }
  void read_request();
  void wait_for_bytes();
  void wait_for_turn();
  void list_in(std::list<HttpConnection*>* list);
  void read_some();
  void take(std::string_view bytes);
  void begin_request();
  bool begin_body();
  void handle();
  void give_up_body();
  void linger();
  bool hold(std::size_t num_bytes);
  void write_some();
  void write_on();
  void on_response_written();

  std::shared_ptr<HttpHub> hub_;
  HttpSocket socket_;
  ClientUse* use_;
  std::size_t held_bytes_ = 0;
  std::optional<RequestReader> reader_;
  std::string pending_;  // bytes behind the request that is being answered
  State state_ = State::Idle;
  Steady::time_point request_began_ = Steady::now();
  std::list<HttpConnection*>* list_ = nullptr;  // of the client, in which the connection is
  std::list<HttpConnection*>::iterator place_;
  std::string cors_lines_;
  Steady::time_point deadline_ = Steady::time_point::max();
  bool keeps_alive_ = true;
  bool is_http10_ = false;
  bool is_head_ = false;     // method HEAD: the response has no body
  std::string target_;       // of the request that is answered: errors have the form of its API
  bool is_waiting_ = false;  // for bytes
  bool is_cut_ = false;      // the request: bytes of it may still come
  bool is_whole_ = false;    // the response's last byte is in unsent_ or in_flight_
  bool is_writing_ = false;
  bool has_more_ = false;  // of the stream: the service writes it when there is room
  std::string unsent_;     // added during a write
  std::string in_flight_;  // being written
  std::size_t num_written_ = 0;
  std::uint64_t num_lingering_bytes_ = 0;  // that came after the answer
  Steady::time_point lingers_until_ = Steady::time_point::max();
};

}  // namespace metronome
