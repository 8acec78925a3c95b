// SPDX-License-Identifier: Apache-2.0
// The record of a run, built from the event stream. It is small enough for a million requests, and
// exact enough to restore the time of every token.
//
// A token is available when its step finishes, so a request's tokens form runs of consecutive
// steps. The record stores nothing per token. A decode costs one store per chunk, and nothing
// while it is in the run of decodes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/chunked_vector.h"
#include "core/base/types.h"
#include "core/engine/event.h"
#include "core/engine/front_end.h"
#include "core/engine/request.h"
#include "core/metrics/step_history.h"

namespace metronome {

// Each of the steps [first_step, first_step + num_steps) gave a token, with accepted drafts more:
// RunRecord::counts_of(). Steps are indices into RunRecord::steps.
struct TokenRun {
  std::int32_t first_step = 0;
  std::int32_t num_steps = 0;

  std::int32_t last_step() const { return first_step + num_steps - 1; }
  bool operator==(const TokenRun&) const = default;
};

// A prefill chunk in one step: of a prompt, or of the recomputation after a preemption.
struct PrefillChunk {
  RequestId request = kNoRequest;
  std::int32_t first_position = 0;
  std::int32_t num_tokens = 0;

  std::int32_t end_position() const { return first_position + num_tokens; }
  bool operator==(const PrefillChunk&) const = default;
};

struct RequestRecord {
  TimeNs arrival = 0;
  TimeNs first_scheduled = kNoTime;
  TimeNs last_scheduled = kNoTime;  // differs after a preemption
  TimeNs first_token = kNoTime;
  TimeNs last_token = kNoTime;
  TimeNs ended = kNoTime;
  // Over the gaps between the request's tokens; meaningless with fewer than two tokens.
  TimeNs min_itl_ns = 0;
  TimeNs max_itl_ns = 0;
  std::int32_t max_itl_step = -1;  // index of the step that ended the first longest gap
  std::int32_t num_prompt_tokens = 0;
  std::int32_t max_output_tokens = 0;  // requested
  std::int32_t num_output_tokens = 0;  // received
  std::int32_t num_preemptions = 0;
  std::int32_t num_prefill_chunks = 0;
  std::int32_t priority = 0;
  std::int32_t num_prefix_hit_tokens = 0;  // prompt tokens cached at the first admission
  std::uint32_t first_run = 0;             // index into RunRecord::runs
  EndReason reason = EndReason::None;
  std::uint16_t class_number = 0;  // of Workload::class_names, from 1; 0: none

  bool completed() const {
    return reason == EndReason::Length || reason == EndReason::Stop ||
           reason == EndReason::HandedOver;
  }
  bool has_itl() const { return num_output_tokens >= 2; }
  TimeNs ttft_ns() const { return first_token - arrival; }
  TimeNs e2el_ns() const { return last_token - arrival; }
  TimeNs jitter_ns() const { return max_itl_ns - min_itl_ns; }
  // vLLM's definition: time after the first token / tokens after the first. Requires has_itl().
  double tpot_ns() const {
    return static_cast<double>(last_token - first_token) /
           static_cast<double>(num_output_tokens - 1);
  }
};
static_assert(sizeof(RequestRecord) <= 104);

// Speculative decoding as vLLM counts it (vllm/v1/spec_decode/metrics.py): a draft is what one
// decode verified, at least one draft token; padding does not count.
struct DraftCounts {
  std::int64_t num_drafts = 0;
  std::vector<std::int64_t> drafted;   // [i]: drafts with an (i+1)-th token
  std::vector<std::int64_t> accepted;  // [i]: drafts whose (i+1)-th token was accepted

  std::int64_t num_drafted() const;   // draft tokens
  std::int64_t num_accepted() const;  // of them
  // Counts one draft, of num_drafted >= 1 tokens.
  void add(std::int32_t num_drafted, std::int32_t num_accepted);
  // Counts the drafts of a step, and none if it failed or its executor verifies none.
  void add_step(std::span<const ScheduledChunk> chunks, const StepResult& result);
  void add(const DraftCounts& others);
};

struct PreemptionRecord {
  TimeNs time = 0;
  RequestId request = kNoRequest;
};

// A client's facts about a request, in addition to its RequestRecord, whose `arrival` is then the
// send time.
struct ClientView {
  TimeNs due = 0;               // arrival time in the workload
  std::int32_t num_tokens = 0;  // received: the server's count, else the number of token events

  bool operator==(const ClientView&) const = default;
};

// One of several engines of a run.
struct ReplicaRecord {
  std::size_t first_step = 0;  // index into RunRecord::steps
  std::size_t num_steps = 0;
  std::int64_t num_blocks = 0;  // of its KV cache; 0: unknown
  bool starts_off = false;      // see ReplicaScope

  std::size_t end_step() const { return first_step + num_steps; }
};

struct RunRecord {
  // In order of commit; of several engines, one after the other. Seen by a client (has_steps() is
  // false), an entry is a time at which tokens came, with only `finished_at` and `num_emitted` set.
  // Two events of one request at the same time are two entries.
  StepHistory steps;
  ChunkedVector<PrefillChunk> prefills;       // by step, in plan order
  std::vector<RequestRecord> requests;        // by RequestId
  std::vector<std::string> class_names;       // of RequestRecord::class_number, from 1
  std::vector<TokenRun> runs;                 // by request, in time order
  std::vector<PreemptionRecord> preemptions;  // in time order
  std::vector<ClientView> client;             // by RequestId; empty: recorded by the engine
  // By RequestId: when the front end handed a request over; empty: at its arrival.
  std::vector<TimeNs> handed_over;
  DraftCounts drafts;
  bool has_encodings = false;  // of images, in some step
  // Of a run of several engines; empty: it had one. By RequestId: the engine that had the request
  // last; -1: none.
  std::vector<ReplicaRecord> replicas;
  std::vector<std::int32_t> replica_of;
  std::vector<FleetEvent> fleet_events;  // in time order
  // Tokens of each request in each step of its runs, in time order; first_count is by request.
  // Empty without drafts: one in each.
  std::vector<std::uint8_t> token_counts;
  std::vector<std::size_t> first_count;

  // Whether `steps` are an engine's steps.
  bool has_steps() const { return client.empty(); }

  // From the arrival of request i until the engine could see it.
  TimeNs front_end_ns(std::size_t i) const {
    return handed_over.empty() ? 0 : handed_over[i] - requests[i].arrival;
  }
  // From then until a plan first scheduled it.
  TimeNs queue_ns(std::size_t i) const {
    return requests[i].first_scheduled - requests[i].arrival - front_end_ns(i);
  }

  // The runs of request i. Concatenated, they list the steps of its tokens in order.
  std::span<const TokenRun> runs_of(std::size_t i) const;
  // The tokens of request i in each of these steps; empty: one in each.
  std::span<const std::uint8_t> counts_of(std::size_t i) const;
};

// Tells where the engines of a run begin.
class ReplicaStarts {
 public:
  explicit ReplicaStarts(const RunRecord& record) : replicas_(record.replicas) {}
  // Whether an engine's first step is this one. Asked for steps in ascending order.
  bool begins(std::size_t step) {
    bool is_first = step == 0;
    for (; next_ < replicas_.size() && replicas_[next_].first_step <= step; ++next_) {
      is_first = is_first || replicas_[next_].first_step == step;
    }
    return is_first;
  }

 private:
  const std::vector<ReplicaRecord>& replicas_;
  std::size_t next_ = 0;
};

// Calls visit(step, until) for each step of an engine: its plan's state lasts from then `until` the
// next plan, but at most to the step's end.
template <class Visit>
void visit_steps(const RunRecord& record, const ReplicaRecord& replica, const Visit& visit) {
  const StepHistory& steps = record.steps;
  std::size_t next = replica.first_step;
  for (auto at = steps.from(next); at.position() < replica.end_step(); ++at) {
    const StepEntry& step = *at;
    const TimeNs until = ++next < replica.end_step()
                             ? std::min(steps.planned_at(next), step.finished_at)
                             : step.finished_at;
    visit(step, until);
  }
}

// Derives fields from steps, requests' runs, token counts and reasons alone: num_output_tokens,
// first_token, last_token, each request's gap extremes, and num_continued of each step. For a run
// seen by a client, the token count is the client's.
void derive_token_facts(RunRecord& record);

// Takes the steps of a record while it grows, a few thousand at a time.
class StepSink {
 public:
  virtual ~StepSink() = default;
  // The next steps, of which there may be none, and their prefill chunks.
  virtual void take(std::unique_ptr<const StepHistory> steps, std::vector<PrefillChunk> chunks) = 0;
};

// Builds a RunRecord. on_step takes about a nanosecond per chunk. Memory is constant per step and
// per request. Each interruption of a request's consecutive tokens adds eight bytes, each prefill
// chunk twelve.
class RunRecorder final : public EventSink {
 public:
  // Reserves room for that many requests; more are allowed. `step_sink` outlives the recorder;
  // null: nobody takes the steps before finish().
  explicit RunRecorder(std::size_t expected_requests = 0, const FrontEnd& front_end = {},
                       StepSink* step_sink = nullptr);
  // Records one of several engines, as if it were the only one.
  RunRecorder(const ReplicaScope& scope, const FrontEnd& front_end);

  // The parts hand their steps to no step sink.
  EventSink* of_replica(const ReplicaScope& scope) override;
  bool takes_runs() const override { return true; }
  void on_fleet_event(const FleetEvent& event) override { fleet_events_.push_back(event); }
  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;
  void on_repeats(const StepRecord& last, std::span<const StepTimes> times) override;

  // The record of everything so far. Leaves the recorder empty. A request id that no event
  // mentioned has num_prompt_tokens 0.
  RunRecord finish();

  // Bytes of memory of what was recorded.
  std::size_t num_bytes() const;

 private:
  // A request's current run. It is separate from RequestRecord so that a batch's runs fit the
  // innermost cache.
  struct OpenRun {
    std::int32_t first_step;
    std::int32_t last_step;
    std::int32_t last_closed;  // index into closed_runs_, or kNone
    std::int32_t num_prefill_chunks;
  };
  struct ClosedRun {
    TokenRun run;
    std::int32_t previous;  // index of the same request's previous run, or kNone
  };
  static constexpr std::int32_t kNone = -1;
  // Not adjacent to any step, so a first token never counts as a continuation.
  static constexpr std::int32_t kNeverEmitted = -2;

  RequestRecord& mention(const Request& request);
  void grow_to(std::size_t num_requests);
  void restart_run(OpenRun& open, std::int32_t step);
  void follow_run(const CommittedRun& run, std::int32_t step);
  void note_drafts(std::span<const ScheduledChunk> chunks, const StepResult& result,
                   StepEntry& entry);
  void gather_counts(RunRecord& record) const;
  void note_prefill(const ScheduledChunk& chunk, OpenRun& run, StepEntry& entry);
  void hand_on_steps();
  void hand_on(std::size_t end);
  // As finish(), without what follows from steps and runs.
  RunRecord take();
  void gather_runs(RunRecord& record);

  FrontEnd front_end_;
  // Of a run of several engines, in the order of their numbers.
  std::vector<std::unique_ptr<RunRecorder>> replicas_;
  std::vector<ReplicaScope> scopes_;
  std::vector<FleetEvent> fleet_events_;
  std::shared_ptr<const std::vector<TimeNs>> handed_over_;  // see ReplicaScope
  // It has the steps and prefills before these.
  StepSink* step_sink_;
  std::size_t num_handed_on_ = 0;
  std::size_t num_prefills_handed_on_ = 0;
  StepHistory steps_;
  ChunkedVector<PrefillChunk> prefills_;
  std::vector<RequestRecord> requests_;
  std::vector<OpenRun> open_;
  std::vector<ClosedRun> closed_runs_;
  std::vector<PreemptionRecord> preemptions_;
  // Members of the engine's run of decodes. Their tokens are noted when they leave it.
  std::vector<RequestId> members_;
  std::int32_t last_run_step_ = kNeverEmitted;  // the last step that had the run
  // With drafts: who received how many tokens, in order of time.
  DraftCounts drafts_;
  bool has_encodings_ = false;
  std::vector<RequestId> receivers_;
  std::vector<std::uint8_t> received_;
};

}  // namespace metronome
