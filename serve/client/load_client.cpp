// SPDX-License-Identifier: Apache-2.0
#include "serve/client/load_client.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/workload/workload_arrivals.h"
#include "serve/client/stream_response.h"

namespace metronome {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
// Concrete executors, as the general ones cost an indirection for every token.
using Socket = asio::basic_stream_socket<tcp, asio::io_context::executor_type>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>,
                                         asio::io_context::executor_type>;

constexpr TimeNs kTick = 10 * kNsPerMs;
constexpr std::size_t kMinSpares = 8;
constexpr std::size_t kMaxSpares = 1024;
constexpr std::size_t kReadBytes = std::size_t{16} << 10;
constexpr std::size_t kNobody = SIZE_MAX;

TimeNs thread_cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto ns = [](const timeval& time) {
    return TimeNs{time.tv_sec} * kNsPerSecond + TimeNs{time.tv_usec} * kNsPerUs;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// The maximum number of requests that are due within 100 ms.
std::size_t largest_burst(const Workload& workload) {
  if (workload.mode == ArrivalMode::ClosedLoop) {
    return static_cast<std::size_t>(workload.concurrency);
  }
  std::size_t largest = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    while (workload.requests[i].arrival - workload.requests[begin].arrival > 100 * kNsPerMs) {
      ++begin;
    }
    largest = std::max(largest, i + 1 - begin);
  }
  return largest;
}

// A connection to the server. A read is always pending, so that a close by the server is detected
// before a request is sent.
struct Connection {
  explicit Connection(asio::io_context& loop) : socket(loop) {}

  Socket socket;
  std::size_t request = kNobody;  // the current request
  std::int64_t num_carried = 0;   // requests before the current one
  bool is_writing = false;
  bool is_closed = false;
  StreamResponse response;
  std::string text;  // kept while being written, and for a retry
  std::array<char, kReadBytes> buffer;
};
using ConnectionPtr = std::shared_ptr<Connection>;

class LoadRun {
 public:
  LoadRun(const Workload& workload, LoadRequestQueue& texts, const Clock& clock,
          const LoadOptions& options)
      : workload_(workload),
        texts_(texts),
        clock_(clock),
        options_(options),
        endpoint_(asio::ip::make_address(options.address.ip), options.address.port),
        arrivals_(workload),
        send_timer_(loop_),
        tick_timer_(loop_) {
    result_.requests.resize(workload.requests.size());
    carriers_.resize(workload.requests.size());
    if (options.max_concurrency > 0) {
      most_running_ = static_cast<std::size_t>(options.max_concurrency);
    }
    if (workload.mode == ArrivalMode::ClosedLoop) {
      most_running_ = std::min(most_running_, static_cast<std::size_t>(workload.concurrency));
    }
    num_spares_ = std::clamp(largest_burst(workload), kMinSpares, kMaxSpares);
  }

  LoadResult run() {
    connect_spares();
    start_ = clock_.now();
    cpu_start_ = window_cpu_ = thread_cpu_ns();
    next_tick_ = kTick;
    wait_for_tick();
    send_due();
    loop_.run();
    METRONOME_CHECK(num_ended_ == result_.requests.size(), "every request of a load ends");
    result_.loop.wall_ns = now();
    result_.loop.cpu_ns = thread_cpu_ns() - cpu_start_;
    note_second(result_.loop.wall_ns);
    return std::move(result_);
  }

 private:
  TimeNs now() const { return clock_.now() - start_; }
  LoadedRequest& at(std::size_t i) { return result_.requests[i]; }

  // Opens the first connections and waits for them before the load's clock starts.
  void connect_spares() {
    top_up_spares();
    const TimeNs begin = clock_.now();
    while (num_connecting_ > 0 && clock_.now() - begin < 2 * kNsPerSecond) {
      loop_.run_one_for(std::chrono::milliseconds(20));
      options_.on_tick(0);
    }
    loop_.restart();
  }

  void top_up_spares() {
    if (is_over_ || !takes_spares_) return;
    const std::size_t num_left = workload_.requests.size() - num_begun_;
    std::size_t wanted = std::min(num_spares_, num_left);
    wanted = std::min(wanted, most_running_ - num_running_);
    wanted += starved_.size();
    while (idle_.size() + num_connecting_ < wanted) open_connection();
  }

  void open_connection() {
    ++num_connecting_;
    ++result_.loop.num_connections;
    auto connection = std::make_shared<Connection>(loop_);
    connection->socket.async_connect(endpoint_, [this, connection](const ErrorCode& error) {
      --num_connecting_;
      if (is_over_) return;
      if (error) return on_no_connection(error);
      ErrorCode ignored;
      connection->socket.set_option(tcp::no_delay(true), ignored);
      read_next(connection);
      give_work(connection);
    });
  }

  void on_no_connection(const ErrorCode& error) {
    takes_spares_ = false;  // needed connections are tried one by one
    // Every waiting request has another connection in progress, so this one was a spare.
    if (num_connecting_ >= starved_.size()) return;
    const std::size_t i = starved_.front();
    starved_.pop_front();
    end(i, EndReason::Errored, "cannot connect: " + error.message());
  }

  // Gives an idle connection the first request without a connection, or adds it to the idle ones.
  void give_work(const ConnectionPtr& connection) {
    if (starved_.empty()) {
      idle_.push_back(connection);
      return;
    }
    const std::size_t i = starved_.front();
    starved_.pop_front();
    send(connection, i, texts_.take(i));
  }

  // Sends the requests that are due and sets the timer for the next.
  void send_due() {
    if (is_over_) return;
    while (const auto spec = arrivals_.pop_due(now(), 0)) {
      const std::size_t i = num_arrived_++;
      at(i).due = spec->arrival;
      waiting_.push_back(i);
    }
    begin_waiting();
    const TimeNs next = arrivals_.next_time();
    if (next == kNever) return;
    send_timer_.expires_after(std::chrono::nanoseconds(std::max<TimeNs>(next - now(), 0)));
    send_timer_.async_wait([this](const ErrorCode& error) {
      if (!error) send_due();
    });
  }

  void begin_waiting() {
    while (!waiting_.empty() && num_running_ < most_running_) {
      const std::size_t i = waiting_.front();
      waiting_.pop_front();
      ++num_running_;
      ++num_begun_;
      at(i).ready = had_to_wait_ ? now() : at(i).due;
      deadlines_.push_back(i);
      dispatch(i);
    }
    had_to_wait_ = !waiting_.empty();
  }

  void dispatch(std::size_t i) {
    while (!idle_.empty()) {
      const ConnectionPtr connection = idle_.back();  // the last used is likeliest to be open
      idle_.pop_back();
      if (connection->is_closed) continue;
      send(connection, i, texts_.take(i));
      top_up_spares();
      return;
    }
    starved_.push_back(i);
    if (num_connecting_ < starved_.size()) open_connection();
    top_up_spares();
  }

  void send(const ConnectionPtr& connection, std::size_t i, std::string text) {
    carriers_[i] = connection;
    connection->request = i;
    connection->response = StreamResponse();
    connection->text = std::move(text);
    connection->is_writing = true;
    at(i).tokens.reserve(static_cast<std::size_t>(workload_.requests[i].max_output_tokens) + 1);
    at(i).sent = now();
    asio::async_write(connection->socket, asio::buffer(connection->text),
                      [connection](const ErrorCode&, std::size_t) {
                        // If the write failed, the read also ends, after the rest of the server's
                        // answer.
                        connection->is_writing = false;
                      });
  }

  void read_next(const ConnectionPtr& connection) {
    connection->socket.async_read_some(
        asio::buffer(connection->buffer),
        [this, connection](const ErrorCode& error, std::size_t num_bytes) {
          if (connection->is_closed) return;
          if (connection->request == kNobody) return close(connection);  // idle: closed by server
          if (error) {
            on_lost(connection, error);
          } else {
            on_bytes(connection, {connection->buffer.data(), num_bytes});
          }
          if (!connection->is_closed) read_next(connection);
        });
  }

  void on_bytes(const ConnectionPtr& connection, std::string_view bytes) {
    const TimeNs time = now();
    const std::size_t i = connection->request;
    const std::int32_t num_tokens = connection->response.read(bytes);
    note_tokens(i, time, num_tokens);
    if (connection->response.is_over()) on_answered(connection);
  }

  void note_tokens(std::size_t i, TimeNs time, std::int32_t num_tokens) {
    ++result_.loop.num_reads;
    if (num_tokens == 0) return;
    result_.loop.num_events += num_tokens;
    result_.loop.num_merged += num_tokens - 1;
    at(i).tokens.insert(at(i).tokens.end(), static_cast<std::size_t>(num_tokens), time);
  }

  void on_lost(const ConnectionPtr& connection, const ErrorCode& error) {
    const std::size_t i = connection->request;
    // The server closed a kept connection while the request was on its way, so the server has not
    // seen the request.
    const bool is_stale = connection->num_carried > 0 && !connection->response.has_begun();
    if (is_stale) {
      ++result_.loop.num_retries;
      connection->request = kNobody;
      close(connection);
      return send_again(i, std::make_shared<std::string>(std::move(connection->text)));
    }
    if (error == asio::error::eof) {
      note_tokens(i, now(), connection->response.end());
      return on_answered(connection);
    }
    // Tokens received completely before the reset count; the request counts as failed.
    const bool was_waiting = !connection->response.has_begun();
    close_carrier(connection);
    end(i, EndReason::Errored,
        (was_waiting ? "the connection was lost before an answer: "
                     : "the connection was lost in the middle of the answer: ") +
            error.message());
  }

  void send_again(std::size_t i, const std::shared_ptr<std::string>& text) {
    auto connection = std::make_shared<Connection>(loop_);
    ++result_.loop.num_connections;
    carriers_[i] = connection;
    connection->request = i;
    connection->socket.async_connect(
        endpoint_, [this, connection, text, i](const ErrorCode& error) {
          if (connection->is_closed) return;  // it timed out meanwhile
          if (error) {
            close_carrier(connection);
            return end(i, EndReason::Errored, "cannot connect again: " + error.message());
          }
          connection->socket.set_option(tcp::no_delay(true), ignored_);
          send(connection, i, std::move(*text));
          read_next(connection);
        });
  }

  void on_answered(const ConnectionPtr& connection) {
    const std::size_t i = connection->request;
    const StreamResponse& response = connection->response;
    LoadedRequest& request = at(i);
    request.prompt_tokens = response.prompt_tokens();
    request.completion_tokens = response.completion_tokens();
    const std::string error = response.error();
    const bool was_stopped = response.finish_reason() == "stop";
    const bool is_refusal = response.is_refusal();
    const bool is_reusable = response.keeps_alive() && !connection->is_writing;
    connection->request = kNobody;
    ++connection->num_carried;
    carriers_[i] = nullptr;
    if (!is_reusable) close(connection);
    if (!error.empty()) {
      end(i, is_refusal ? EndReason::QueueFull : EndReason::Errored, error);
    } else if (request.tokens.empty()) {
      end(i, EndReason::Errored, "the answer has no tokens");
    } else {
      end(i, was_stopped ? EndReason::Stop : EndReason::Length, {});
    }
    if (is_reusable && !connection->is_closed) give_work(connection);
  }

  void end(std::size_t i, EndReason reason, std::string error) {
    LoadedRequest& request = at(i);
    METRONOME_CHECK(request.reason == EndReason::None, "a request of a load ends once");
    request.reason = reason;
    request.error = std::move(error);
    request.ended = now();
    --num_running_;
    arrivals_.on_ended(request.ended);
    if (++num_ended_ == result_.requests.size()) return stop();
    // Posted, as a request that fails at once would otherwise start the next one recursively.
    asio::post(loop_, [this] {
      texts_.refill();
      if (workload_.mode == ArrivalMode::ClosedLoop) send_due();
      begin_waiting();
    });
  }

  void close(const ConnectionPtr& connection) {
    connection->is_closed = true;
    connection->socket.close(ignored_);
    std::erase(idle_, connection);
  }

  void close_carrier(const ConnectionPtr& connection) {
    carriers_[connection->request] = nullptr;
    connection->request = kNobody;
    close(connection);
  }

  void wait_for_tick() {
    tick_timer_.expires_after(std::chrono::nanoseconds(std::max<TimeNs>(next_tick_ - now(), 0)));
    tick_timer_.async_wait([this](const ErrorCode& error) {
      if (error || is_over_) return;
      const TimeNs time = now();
      result_.loop.lags.push_back(time - next_tick_);
      next_tick_ = std::max(next_tick_ + kTick, time);
      if (time - window_start_ >= kNsPerSecond) note_second(time);
      end_late(time);
      if (time >= options_.most_ns && !is_over_) give_up();
      texts_.refill();
      options_.on_tick(num_ended_);
      if (!is_over_) wait_for_tick();
    });
  }

  void note_second(TimeNs time) {
    const TimeNs cpu = thread_cpu_ns();
    const TimeNs span = time - window_start_;
    // A span below half a second says little, but it counts if there is no other.
    if (2 * span >= kNsPerSecond || window_start_ == 0) {
      result_.loop.busiest_second =
          std::max(result_.loop.busiest_second, static_cast<double>(cpu - window_cpu_) /
                                                    static_cast<double>(std::max<TimeNs>(span, 1)));
    }
    window_start_ = time;
    window_cpu_ = cpu;
  }

  // Ends requests that exceed their timeout. They became ready in this order.
  void end_late(TimeNs time) {
    while (!deadlines_.empty()) {
      const std::size_t i = deadlines_.front();
      if (at(i).reason == EndReason::None) {
        if (time - at(i).ready < options_.timeout_ns) return;
        std::erase(starved_, i);
        if (const ConnectionPtr connection = carriers_[i]) close_carrier(connection);
        end(i, EndReason::Aborted, "took longer than --timeout allows");
      }
      deadlines_.pop_front();
    }
  }

  // Ends all requests that have not ended, sent or not.
  void give_up() {
    waiting_.clear();
    starved_.clear();
    for (std::size_t i = 0; i < result_.requests.size(); ++i) {
      if (at(i).reason != EndReason::None) continue;
      if (const ConnectionPtr connection = carriers_[i]) close_carrier(connection);
      if (at(i).due == kNoTime) at(i).due = workload_.requests[i].arrival;
      if (at(i).ready == kNoTime) ++num_running_;  // end() takes it off
      end(i, EndReason::Aborted, "was given up, as the load took too long");
    }
  }

  void stop() {
    is_over_ = true;
    send_timer_.cancel();
    tick_timer_.cancel();
    loop_.stop();
  }

  const Workload& workload_;
  LoadRequestQueue& texts_;
  const Clock& clock_;
  const LoadOptions& options_;
  const tcp::endpoint endpoint_;
  asio::io_context loop_{1};  // single-threaded
  WorkloadArrivals arrivals_;
  Timer send_timer_;
  Timer tick_timer_;
  ErrorCode ignored_;

  LoadResult result_;
  std::vector<ConnectionPtr> carriers_;  // by request; nullptr: none
  std::vector<ConnectionPtr> idle_;
  std::deque<std::size_t> waiting_;    // waiting for max_concurrency
  std::deque<std::size_t> starved_;    // waiting for a connection
  std::deque<std::size_t> deadlines_;  // in the order in which they became ready
  std::size_t num_spares_ = 0;
  std::size_t most_running_ = SIZE_MAX;
  std::size_t num_connecting_ = 0;
  std::size_t num_arrived_ = 0;
  std::size_t num_begun_ = 0;
  std::size_t num_running_ = 0;
  std::size_t num_ended_ = 0;
  bool had_to_wait_ = false;
  bool takes_spares_ = true;
  bool is_over_ = false;
  TimeNs start_ = 0;
  TimeNs next_tick_ = 0;
  TimeNs cpu_start_ = 0;
  TimeNs window_start_ = 0;
  TimeNs window_cpu_ = 0;
};

}  // namespace

LoadResult run_load(const Workload& workload, LoadRequestQueue& texts, const Clock& clock,
                    const LoadOptions& options) {
  METRONOME_CHECK(workload.mode != ArrivalMode::Steps, "a server's steps cannot be arrived at");
  return LoadRun(workload, texts, clock, options).run();
}

std::int64_t raise_open_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return INT64_MAX;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

std::int64_t connections_wanted(const Workload& workload, std::int64_t max_concurrency) {
  const auto burst = static_cast<std::int64_t>(largest_burst(workload));
  return max_concurrency > 0 ? std::min(burst, max_concurrency) : burst;
}

}  // namespace metronome
