// SPDX-License-Identifier: Apache-2.0
// Bodies of requests that are read in the background, each until its client leaves.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>

#include "serve/server/api_request.h"
#include "serve/server/reply.h"
#include "serve/server/work_queue.h"

namespace metronome {

// Runs on one thread, that of the connections, except for the tasks that it gives to `background`.
class BodyReads {
 public:
  using Task = std::function<void()>;
  // An answer, or a request to the engine.
  using Result = std::variant<Reply, ApiRequest>;
  // `has_left` may become true: then the result does not matter. An exception becomes a reply.
  using Parse = std::function<Result(const std::string& body, const std::atomic<bool>& has_left)>;
  using Done = std::function<void(Result result, const std::shared_ptr<Client>& client)>;

  // `background` does work on another thread, `foreground` a task on this one.
  BodyReads(std::function<void(Work)> background, std::function<void(Task)> foreground)
      : background_(std::move(background)), foreground_(std::move(foreground)) {}

  // `parse` reads the body in the background. `done` gets the result, unless the client leaves.
  void read(std::string body, std::shared_ptr<Client> client, Parse parse, Done done);
  // The client disconnected. Returns whether a body of it was not read yet: that is forgotten.
  bool leave(const Client* client);
  bool is_empty() const { return reading_.empty(); }

 private:
  struct Reading {
    std::string body;
    std::atomic<bool> has_left = false;  // the client
    std::atomic_flag is_claimed;

    // True once: for whoever reads the body, or forgets it.
    bool claim() { return !is_claimed.test_and_set(); }
  };

  static Result parse_safely(Reading& reading, const Parse& parse);

  std::function<void(Work)> background_;
  std::function<void(Task)> foreground_;
  std::unordered_map<const Client*, std::shared_ptr<Reading>> reading_;
};

}  // namespace metronome
