// One connection of a client: reads its requests one after the other, and writes the responses.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "serve/server/http_limits.h"
#include "serve/server/http_socket.h"
#include "serve/server/request_reader.h"
#include "serve/server/service.h"

namespace metronome {

class HttpConnection;

// What the connections of a server share. Used on the server's thread.
struct HttpHub {
  explicit HttpHub(const HttpLimits& wanted) : limits(wanted) {}

  HttpLimits limits;
  boost::asio::io_context io{1};
  Service* service = nullptr;
  bool is_accepting = false;
  std::unordered_set<HttpConnection*> connections;
  std::string scratch = std::string(64 * 1024, '\0');  // bytes that were just read
};

// The bytes of a response's header.
std::string http_head(const Reply& reply, bool keeps_alive, bool is_http10);

// The object lives while an operation on its socket is pending or the service makes its response.
// close() ends the pending operations.
class HttpConnection final : public Client, public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpHub> hub, HttpSocket socket);
  ~HttpConnection() override;

  void begin() { read_request(); }

  // Overrides of Client.
  void reply(Reply reply) override;
  void begin_stream() override;
  void write(std::string_view bytes) override;
  void end_stream() override;
  void flush() override;

  void check_deadline(std::chrono::steady_clock::time_point now);
  // Closes the connection if it is between two requests, else after its response.
  void close_if_idle();
  void close();

 private:
  enum class State { Idle, Header, Body, Answering, Streaming, Closed };
  using Steady = std::chrono::steady_clock;

  static Steady::time_point in(std::chrono::milliseconds time) { return Steady::now() + time; }
  bool is_busy() const { return state_ == State::Answering || state_ == State::Streaming; }
  void read_request();
  void wait_for_bytes();
  void read_some();
  void take(std::string_view bytes);
  bool begin_body();
  void handle();
  void give_up(int status, const char* message);
  void write_some();
  void write_on();
  void on_response_written();

  std::shared_ptr<HttpHub> hub_;
  HttpSocket socket_;
  std::optional<RequestReader> reader_;
  std::string pending_;  // bytes behind the request that is being answered
  State state_ = State::Idle;
  Steady::time_point deadline_ = Steady::time_point::max();
  bool keeps_alive_ = true;
  bool is_http10_ = false;
  bool is_head_ = false;  // method HEAD: the response has no body
  bool is_waiting_ = false;  // for bytes
  Steady::time_point last_progress_ = Steady::now();  // of writing
  bool is_whole_ = false;  // the response's last byte is in unsent_ or in_flight_
  bool is_writing_ = false;
  std::string unsent_;     // added during a write
  std::string in_flight_;  // being written
  std::size_t num_written_ = 0;
};

}  // namespace metronome
