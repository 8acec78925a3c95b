// SPDX-License-Identifier: Apache-2.0
// A client in the process of the engine: asks, and reads answers as they come.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/types.h"
#include "serve/server/answer_text.h"
#include "serve/server/api_request.h"
#include "serve/server/live_engine.h"

namespace metronome {

// "21.3 ms".
std::string shown_ms(TimeNs time);

// One answer, as far as it has come. Times are the engine's.
struct LocalAnswer {
  std::string text;
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_cached_tokens = 0;  // of the prompt
  TimeNs asked_at = 0;
  std::vector<TimeNs> token_times;
  bool has_ended = false;
  EndReason reason = EndReason::None;
  std::string error;  // why it did not complete

  TimeNs ttft() const { return token_times.empty() ? 0 : token_times.front() - asked_at; }
  std::vector<TimeNs> gaps() const;  // between tokens, in order
};

// Used by one thread, except for on_events() and fail().
class LocalClient {
 public:
  // References outlive the client.
  LocalClient(const ServedModel& model, LiveEngine& engine) : model_(model), engine_(engine) {}

  // For the engine's thread: there are events, or the engine failed.
  void on_events();
  void fail(const std::string& error);

  // A request of the chat API, {"messages": [...], ...}, for LiveEngine::submit(); its ticket is
  // the number of its answer. Throws ApiError.
  LiveRequest prepare(const Json& body);
  // Prepares a request and submits it. Returns its number. Throws ApiError, and
  // std::runtime_error after the engine has failed.
  std::uint64_t ask(const Json& body);
  // Of an answer that finish() has not returned.
  const LocalAnswer& answer(std::uint64_t number) const { return open_.at(number).answer; }
  // Waits for events and takes them: `on_text` gets each new piece of a text. Throws Interrupted
  // after a signal, having ended all answers.
  using OnText = std::function<void(std::uint64_t number, std::string_view piece)>;
  void wait(const OnText& on_text);
  // wait() until the answer has ended. The client then forgets it.
  LocalAnswer finish(std::uint64_t number, const OnText& on_text);

 private:
  struct Open {
    Open(const ServedModel& model, const ApiRequest& request) : text(*model.tokenizer, request) {}

    AnswerText text;
    LocalAnswer answer;
  };

  void take(const LiveEvent& event, const OnText& on_text);

  const ServedModel& model_;
  LiveEngine& engine_;
  std::map<std::uint64_t, Open> open_;  // by number; those that finish() has not returned
  std::uint64_t next_number_ = 0;
  std::vector<LiveEvent> events_;

  std::mutex mutex_;
  std::condition_variable has_news_;
  bool has_events_ = false;
  std::string failure_;
};

}  // namespace metronome
