// SPDX-License-Identifier: Apache-2.0
// The server without its sockets: gives every request to the part that answers it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/server/api_request.h"
#include "serve/server/body_reads.h"
#include "serve/server/live_engine.h"
#include "serve/server/model_replies.h"
#include "serve/server/reply.h"
#include "serve/server/running_answers.h"
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
  void resume(const Client* client) { answers_.resume(client); }

  // After this call new requests are refused; running ones continue.
  void drain() { is_draining_ = true; }
  bool is_idle() const { return answers_.is_empty() && bodies_.is_empty(); }
  // Ends all running requests.
  void abort_all();
  // The engine failed: ends running requests with this message and refuses all later ones.
  void fail(const std::string& message);

  ServeMetrics& metrics() { return metrics_; }

 private:
  void read_with(Reply (*read)(const ServedModel&, std::string_view, const std::atomic<bool>&),
                 std::string body, std::shared_ptr<Client> client);
  Reply metrics_reply();
  ServerLoad load();
  void abort_request(std::string_view body, Client& client);
  void generate(ApiKind kind, std::string body, std::shared_ptr<Client> client);
  void refuse(Client& client);

  const ServedModel& model_;
  LiveEngine& engine_;
  ServeClock& clock_;
  const KvCacheLayout& cache_;
  ServiceOptions options_;
  ServeMetrics metrics_;
  BodyReads bodies_;
  RunningAnswers answers_;
  std::uint64_t next_number_ = 0;
  bool is_draining_ = false;
  std::string failure_;
  std::vector<LiveEvent> events_;  // scratch of handle_events()
};

}  // namespace metronome
