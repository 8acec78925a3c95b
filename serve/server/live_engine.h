// SPDX-License-Identifier: Apache-2.0
// Runs an engine on its own thread; other threads submit requests and take events. Threads only
// wait for short locks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/chunked_vector.h"
#include "core/engine/event.h"
#include "core/engine/request_feed.h"
#include "core/metrics/run_record.h"
#include "core/run/run.h"
#include "serve/server/plausible_text.h"
#include "serve/server/serve_clock.h"

namespace metronome {

// The caller's id for a request.
enum class Ticket : std::uint64_t {};

struct LiveRequest {
  Ticket ticket{};
  std::shared_ptr<const std::vector<TokenId>> prompt;      // at least one
  std::shared_ptr<const std::vector<PromptImage>> images;  // of the prompt; null: none
  SamplingParams sampling;
  std::int32_t max_output_tokens = 1;
  std::int32_t priority = 0;
  // The number of tokens after which a simulated answer ends by itself; 0: never.
  std::int32_t answer_tokens = 0;
  // The tokens of a simulated answer; null: plausible text. Its length is answer_tokens.
  std::shared_ptr<const std::vector<TokenId>> script;
  // So many tokens of a simulated answer are not compared with the stop tokens.
  std::int32_t min_tokens = 0;
};

enum class LiveEventKind : std::uint8_t {
  Accepted,
  Admitted,  // the first admission
  Token,
  Ended,
};

struct LiveEvent {
  Ticket ticket{};
  LiveEventKind kind = LiveEventKind::Accepted;
  EndReason reason = EndReason::None;       // Ended
  TimeNs time = 0;                          // by the engine's clock
  TokenId token{};                          // Token
  bool is_stop = false;                     // Token: an end-of-text or stop token
  std::int32_t num_prefix_hit_tokens = 0;   // Token: in the request's prompt
  std::vector<TokenLogprob> logprobs = {};  // Token, as SampledToken::logprobs
  std::string message = {};                 // Ended: why the request did not complete
};

// The engine's activity since the last call, and its current state.
struct LiveStats {
  std::int32_t num_running = 0;
  std::int32_t num_waiting = 0;
  double kv_use = 0;  // used share of the blocks
  std::int64_t num_preemptions = 0;
  std::int64_t num_prefix_queries = 0;    // prompt tokens looked up for admitted requests
  std::int64_t num_prefix_hits = 0;       // of those, cached tokens
  std::vector<std::int32_t> step_tokens;  // per step
  DraftCounts drafts;
};

class LiveEngine final : public RequestFeed, private EventSink {
 public:
  // `run` and `clock` outlive the engine. `text` is the content of simulated answers. At most
  // `max_waiting` requests wait for admission. The engine's thread calls `on_events` when events
  // become available.
  LiveEngine(PreparedRun& run, ServeClock& clock, const PlausibleText& text,
             std::int64_t max_waiting, std::function<void()> on_events);

  // ---- for the engine's thread ----

  // For sinks: the model, and the request of an event or step.
  const ModelConfig& model() const { return run_.model; }
  const LiveRequest& request(RequestId id) const { return live_[index(id)].request; }

  // Serves until close() was called and all requests have ended. `sinks` receive every event.
  // Throws the engine's exceptions.
  void serve(std::span<EventSink* const> sinks);

  // ---- for any other thread ----

  // Submits requests that arrive together. Returns false, without effect, if they would make the
  // queue too long or the engine is closed.
  bool submit(std::vector<LiveRequest> requests);
  // Aborts a request: it ends before the next step is planned. Some of its events may still come.
  void abort(Ticket ticket);
  // Takes effect before the next step. Blocks of running requests stay.
  void reset_prefix_cache();
  // Accepts no more requests.
  void close();
  // Moves out the events since the last call: appends them in order. Events of one step come
  // together. While kMaxEvents and more are not taken, the engine waits: nobody else can take
  // memory for them.
  void drain_events(std::vector<LiveEvent>& events);
  // The counts since the last call, and the present numbers of requests.
  LiveStats drain_stats();

 private:
  static constexpr std::size_t kMaxEvents = 16384;

  struct Arrival {
    TimeNs time = 0;
    LiveRequest request;
  };
  // A request submitted to the engine.
  struct Live {
    LiveRequest request;
    std::vector<EncoderItem> items;  // its images
    bool was_admitted = false;
    bool has_ended = false;
  };

  // Overrides of RequestFeed.
  void exchange(Engine& engine, TimeNs now, bool receives) override;
  std::optional<TimeNs> wait_for_input(TimeNs wake) override;
  OutputToken output_token(RequestId request, std::int32_t i) const override;
  SamplingParams sampling(RequestId request) const override;
  std::span<const TokenId> prompt_ids(RequestId request) const override;
  std::span<const PromptImage> images(RequestId request) const override;
  std::span<const EncoderItem> encoder_items(RequestId request) const override;
  // Overrides of EventSink.
  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;

  void publish();
  void submit_to(Engine& engine, Arrival arrival);
  void note_admission(const Event& event, const Request& request);
  void forget_groups(const Engine& engine);

  PreparedRun& run_;
  ServeClock& clock_;
  const PlausibleText& text_;
  std::int64_t max_waiting_;
  std::function<void()> on_events_;

  std::mutex mutex_;
  std::condition_variable has_input_;
  std::condition_variable has_room_;  // in the outbox, or the engine was closed
  // Guarded by the mutex:
  std::deque<Arrival> inbox_;  // by time
  std::vector<Ticket> aborted_;
  bool wants_reset_ = false;
  bool is_closed_ = false;
  std::int64_t num_waiting_ = 0;  // submitted and never admitted
  std::vector<LiveEvent> outbox_;
  LiveStats stats_;

  // Used only by the engine's thread:
  ChunkedVector<Live, RequestTable::kGroupSize> live_;  // by request id
  std::unordered_map<std::uint64_t, RequestId> open_;   // unfinished requests, by ticket
  std::size_t first_group_ = 0;                         // the first group that is not forgotten
  std::vector<Arrival> arrived_;                        // scratch of exchange()
  std::vector<Ticket> left_;                            // scratch of exchange()
  std::vector<LiveEvent> fresh_;                        // since the last publish()
  LiveStats fresh_stats_;
  std::int64_t num_no_longer_waiting_ = 0;
  std::string step_error_;  // error of the step whose requests end now
};

}  // namespace metronome
