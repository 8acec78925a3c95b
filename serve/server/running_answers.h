// SPDX-License-Identifier: Apache-2.0
// The answers that run: from the request to the engine to the last byte for the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "serve/server/answer.h"
#include "serve/server/answer_times.h"
#include "serve/server/api_request.h"
#include "serve/server/client_loads.h"
#include "serve/server/durable_ends.h"
#include "serve/server/live_engine.h"
#include "serve/server/reply.h"
#include "serve/server/serve_metrics.h"

namespace metronome {

class RunningAnswers {
 public:
  struct Options {
    std::uint64_t id_salt = 0;  // as ServiceOptions have it, as the following
    ClientLoads::Limits limits;
    std::size_t max_body_bytes = 0;
    std::function<std::int64_t()> num_recorded;
  };

  // All references outlive the object.
  RunningAnswers(const ServedModel& model, LiveEngine& engine, const ServeClock& clock,
                 ServeMetrics& metrics, Options options);

  // Asks the engine for a client's answer, or tells the client why not. A client has one request
  // at a time, and a request a number of its own.
  void start(std::uint64_t number, ApiRequest request, const std::shared_ptr<Client>& client);
  // The client disconnected: its answer ends. Returns whether there was one.
  bool leave(const Client* client);
  // Ends the answers to requests whose `rid` begins like this, or all. They end as they are.
  void abort(const std::string& rid, bool is_all);
  // Handles events that follow those of the last call, and writes what clients have room for. A
  // client that has none keeps its tokens waiting; beyond the limits the largest answers end.
  void handle_events(std::vector<LiveEvent>& events);
  // There is room again for the stream of this client.
  void resume(const Client* client);
  // Ends all answers with an error.
  void fail_all(int status, const std::string& message);
  bool is_empty() const { return running_.empty(); }

 private:
  struct Running {
    Answer answer;
    AnswerTimes times;
    std::shared_ptr<Client> client;
    ClientLoads::Share share;
    std::size_t num_unsent_bytes = 0;
    bool has_begun = false;      // the header of the stream was written
    bool is_dirty = false;       // has unsent data for the client
    std::int64_t num_ended = 0;  // choices that the engine has ended, and that are recorded
  };

  void refuse(Client& client, int status, const std::string& message);
  bool is_complete(const Running& running) const;
  bool waits_for_record(std::uint64_t number) const;
  void handle_event(const LiveEvent& event, AnswerTimes::WallTime now);
  void handle_token(Running& running, const LiveEvent& event, AnswerTimes::WallTime now);
  void write_news(std::uint64_t number);
  void write_body(std::uint64_t number);
  void count_unsent(Running& running, std::size_t num_bytes);
  void limit_unsent();
  void finish(std::uint64_t number);
  // `is_refused`: the engine has not begun the request, so its end is not counted.
  void fail_one(std::uint64_t number, int status, const std::string& message,
                bool is_refused = false);
  void abort_rest(std::uint64_t number, bool is_counted = true);

  const ServedModel& model_;
  LiveEngine& engine_;
  const ServeClock& clock_;
  ServeMetrics& metrics_;
  std::uint64_t id_salt_;
  std::size_t max_body_bytes_;
  ClientLoads loads_;
  DurableEnds ends_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Running>> running_;  // by number
  std::unordered_map<const Client*, std::uint64_t> numbers_;             // of the client's request
  std::vector<std::uint64_t> dirty_;  // scratch of handle_events()
  std::string bytes_;                 // scratch
};

}  // namespace metronome
