// SPDX-License-Identifier: Apache-2.0
// The server without its sockets: endpoints, running answers, and clients' view of the engine.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "serve/server/answer.h"
#include "serve/server/api_request.h"
#include "serve/server/body_reads.h"
#include "serve/server/client_loads.h"
#include "serve/server/durable_ends.h"
#include "serve/server/live_engine.h"
#include "serve/server/reply.h"
#include "serve/server/routes.h"
#include "serve/server/serve_metrics.h"

namespace metronome {

struct ServiceOptions {
  std::string version;
  // Chooses the ids of answers. A random one keeps them apart from those of other processes.
  std::uint64_t id_salt = 0;
  std::int64_t max_client_requests = 1024;  // most answers that a client may ask for at once
  // Most prompt tokens of these. One request may have more.
  std::int64_t max_client_tokens = 16 << 20;
  // Most bytes of tokens that answers have not sent yet: nobody reads them, or the answer is sent
  // whole. A client has half of it. Beyond that, the largest answer ends.
  std::size_t max_unsent_bytes = std::size_t{256} << 20;
  std::size_t max_body_bytes = std::size_t{32} << 20;  // of an answer that is sent whole
  std::int32_t num_drafts = 0;                         // see ServeMetrics
  // How many ends of requests, in the order of the engine, are safely recorded. No answer is
  // completed before its end is. Empty: nothing is recorded.
  std::function<std::int64_t()> num_recorded = {};
};

// Runs on one thread, that of the connections, except for `background` tasks.
class Service {
 public:
  using Task = BodyReads::Task;

  // `background` does work on another thread, `foreground` a task on the service's thread. All
  // references outlive the service.
  Service(const ServedModel& model, LiveEngine& engine, ServeClock& clock,
          const KvCacheLayout& cache, ServiceOptions options, std::function<void(Work)> background,
          std::function<void(Task)> foreground);

  // Answers on the client's connection, now or later.
  void handle(std::string_view method, std::string_view target, std::string body,
              std::shared_ptr<Client> client);
  // The client disconnected: its request ends.
  void leave(const Client* client);
  // Sends the engine's events since the last call to the clients.
  void handle_events();
  // There is room again for the stream of this client.
  void resume(const Client* client);

  // After this call new requests are refused; running ones continue.
  void drain() { is_draining_ = true; }
  bool is_idle() const { return running_.empty() && bodies_.is_empty(); }
  // Ends all running requests.
  void abort_all();
  // The engine failed: ends running requests with this message and refuses all later ones.
  void fail(const std::string& message);

  ServeMetrics& metrics() { return metrics_; }

 private:
  using WallTime = std::chrono::steady_clock::time_point;

  // One choice of an answer: a request to the engine.
  struct Part {
    WallTime last_token{};
    TimeNs arrived = 0, admitted = kNoTime, first_token = kNoTime, latest_token = kNoTime;
    std::int32_t num_tokens = 0;
    std::int32_t prompt_tokens = 0;
  };
  struct Running {
    Running(Answer made, std::shared_ptr<Client> to, WallTime now)
        : answer(std::move(made)), client(std::move(to)), arrived(now) {}

    Answer answer;
    std::shared_ptr<Client> client;
    WallTime arrived;
    std::vector<Part> parts;
    ClientLoads::Share share;
    std::size_t num_unsent_bytes = 0;
    bool has_begun = false;     // the header of the stream was written
    bool is_dirty = false;      // has unsent data for the client
    std::size_t num_ended = 0;  // parts that the engine has ended, and that are recorded
  };

  Reply metrics_reply();
  void generate(ApiKind kind, std::string body, std::shared_ptr<Client> client);
  void start(std::uint64_t number, ApiRequest request, const std::shared_ptr<Client>& client);
  void refuse(Client& client);
  bool is_complete(const Running& running) const;
  bool waits_for_record(std::uint64_t number) const;
  void take_event(const LiveEvent& event, WallTime now);
  void take_token(Running& running, std::int32_t choice, const LiveEvent& event, WallTime now);
  void count_end(const Running& running, std::int32_t choice, EndReason reason, WallTime now);
  void write_news(std::uint64_t number);
  void count_unsent(Running& running, std::size_t num_bytes);
  void limit_unsent();
  void finish(std::uint64_t number);
  // `is_refused`: the engine has not begun the request, so its end is not counted.
  void fail_one(std::uint64_t number, int status, const std::string& message,
                bool is_refused = false);
  void abort_rest(std::uint64_t number, bool is_counted = true);

  const ServedModel& model_;
  LiveEngine& engine_;
  ServeClock& clock_;
  const KvCacheLayout& cache_;
  ServiceOptions options_;
  ServeMetrics metrics_;
  BodyReads bodies_;

  std::unordered_map<std::uint64_t, std::unique_ptr<Running>> running_;  // by number
  std::unordered_map<const Client*, std::uint64_t> numbers_;             // of the client's request
  ClientLoads loads_;
  DurableEnds ends_;
  std::uint64_t next_number_ = 0;
  bool is_draining_ = false;
  std::string failure_;
  std::vector<LiveEvent> events_;     // scratch of handle_events()
  std::vector<std::uint64_t> dirty_;  // the same
  std::string bytes_;                 // scratch
};

}  // namespace metronome
