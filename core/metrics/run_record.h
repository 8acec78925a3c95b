// What happened in a run, folded from the event stream into a form small enough to keep for a
// million requests and exact enough to give every token's time back.
//
// A token is available when its step finishes, so a request's tokens are runs of consecutive
// steps: nothing is stored per token, and a run of decodes costs one store a chunk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/chunked_vector.h"
#include "core/base/types.h"
#include "core/engine/event.h"
#include "core/engine/request.h"

namespace metronome {

// One token in each of the steps [first_step, first_step + num_tokens). Steps are counted by
// their position in RunRecord::steps.
struct TokenRun {
  std::int32_t first_step = 0;
  std::int32_t num_tokens = 0;

  std::int32_t last_step() const { return first_step + num_tokens - 1; }
  bool operator==(const TokenRun&) const = default;
};

// One committed step. The counts of running, waiting and used blocks are those right after
// planning.
struct StepEntry {
  TimeNs planned_at = 0;
  TimeNs started_at = 0;
  TimeNs finished_at = 0;
  std::int32_t num_prefill_tokens = 0;
  std::int32_t num_decode_tokens = 0;
  std::int32_t num_running = 0;
  std::int32_t num_waiting = 0;
  std::int32_t num_used_blocks = 0;
  std::uint32_t num_preempted : 30 = 0;
  std::uint32_t failed : 1 = false;        // shares a word: there are millions of these
  std::uint32_t extrapolated : 1 = false;  // StepResult::is_extrapolated
  std::int32_t num_emitted = 0;            // tokens that reached their requests
  std::int32_t num_continued = 0;  // of those, the ones whose predecessor came with the step before
  // Prefill chunks [first_prefill_chunk, first_prefill_chunk + num_prefill_chunks) of RunRecord.
  std::int32_t first_prefill_chunk = 0;
  std::int32_t num_prefill_chunks = 0;
  // StepResult::decode_only_ns; kNoTime: the executor does not know.
  TimeNs decode_only_ns = kNoTime;

  std::int32_t num_tokens() const { return num_prefill_tokens + num_decode_tokens; }
  TimeNs duration_ns() const { return finished_at - started_at; }
};
static_assert(sizeof(StepEntry) == 72);

// A chunk of a prompt, or of what a preempted request computes anew, in one step.
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
  // Over the gaps between the request's tokens; meaningless with fewer than two of them.
  TimeNs min_itl_ns = 0;
  TimeNs max_itl_ns = 0;
  std::int32_t max_itl_step = -1;  // position of the step that ended the first longest gap
  std::int32_t num_prompt_tokens = 0;
  std::int32_t max_output_tokens = 0;  // asked for
  std::int32_t num_output_tokens = 0;  // got
  std::int32_t num_preemptions = 0;
  std::int32_t num_prefill_chunks = 0;
  std::int32_t priority = 0;
  std::int32_t num_prefix_hit_tokens = 0;  // of the prompt, cached when it was first admitted
  std::uint32_t first_run = 0;             // into RunRecord::runs
  EndReason reason = EndReason::None;

  bool completed() const { return reason == EndReason::Length || reason == EndReason::Stop; }
  bool has_itl() const { return num_output_tokens >= 2; }
  TimeNs ttft_ns() const { return first_token - arrival; }
  TimeNs e2el_ns() const { return last_token - arrival; }
  TimeNs queue_ns() const { return first_scheduled - arrival; }
  TimeNs jitter_ns() const { return max_itl_ns - min_itl_ns; }
  // vLLM's: time after the first token over the tokens after the first. Requires has_itl().
  double tpot_ns() const {
    return static_cast<double>(last_token - first_token) /
           static_cast<double>(num_output_tokens - 1);
  }
};
static_assert(sizeof(RequestRecord) <= 104);

struct PreemptionRecord {
  TimeNs time = 0;
  RequestId request = kNoRequest;
};

// What the client of a server knows of a request beside its RequestRecord, whose `arrival` is then
// when it was sent.
struct ClientView {
  TimeNs due = 0;  // when the workload has it arrive
  std::int32_t num_tokens =
      0;  // that it got: the server's count, or else of the events with tokens

  bool operator==(const ClientView&) const = default;
};

struct RunRecord {
  // In order of commit. Of a run that a client watched (has_steps() is false): the instants at
  // which tokens came, with nothing but `finished_at` and `num_emitted`; two events of one request
  // at the same instant are two entries.
  ChunkedVector<StepEntry> steps;
  ChunkedVector<PrefillChunk> prefills;       // by step, in the order of its plan
  std::vector<RequestRecord> requests;        // by RequestId
  std::vector<TokenRun> runs;                 // by request, in order of time
  std::vector<PreemptionRecord> preemptions;  // in order of time
  std::vector<ClientView> client;             // by RequestId; empty: the engine's own record

  // Whether `steps` are those of an engine.
  bool has_steps() const { return client.empty(); }

  // The runs of request i: concatenated they list the steps of its tokens in order.
  std::span<const TokenRun> runs_of(std::size_t i) const;
};

// Fills in what follows from steps, requests' runs and reasons alone: num_output_tokens,
// first_token, last_token, the extremes of each request's gaps, and num_continued of each step. The
// token count of a run that a client watched is the client's.
void derive_token_facts(RunRecord& record);

// Builds a RunRecord. on_step costs about a nanosecond a chunk; memory is constant per step and
// per request, plus eight bytes for every interruption of a request's cadence and twelve for every
// prefill chunk.
class RunRecorder final : public EventSink {
 public:
  // Reserves room for that many requests; any number may come.
  explicit RunRecorder(std::size_t expected_requests = 0);

  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;

  // The record of everything seen so far. Leaves the recorder empty. A request whose id was
  // never mentioned in an event has num_prompt_tokens 0.
  RunRecord finish();

 private:
  // The run a request is in the middle of. Kept apart from RequestRecord so that the requests
  // of a batch lie together in the innermost cache.
  struct OpenRun {
    std::int32_t first_step;
    std::int32_t last_step;
    std::int32_t last_closed;  // into closed_runs_, kNone
    std::int32_t num_prefill_chunks;
  };
  struct ClosedRun {
    TokenRun run;
    std::int32_t previous;  // of the same request, kNone
  };
  static constexpr std::int32_t kNone = -1;
  // Not adjacent to any step, so that a first token never looks like a continuation.
  static constexpr std::int32_t kNeverEmitted = -2;

  RequestRecord& mention(const Request& request);
  void grow_to(std::size_t num_requests);
  void restart_run(OpenRun& open, std::int32_t step);
  void note_prefill(const ScheduledChunk& chunk, OpenRun& run, StepEntry& entry);
  void gather_runs(RunRecord& record);

  ChunkedVector<StepEntry> steps_;
  ChunkedVector<PrefillChunk> prefills_;
  std::vector<RequestRecord> requests_;
  std::vector<OpenRun> open_;
  std::vector<ClosedRun> closed_runs_;
  std::vector<PreemptionRecord> preemptions_;
};

}  // namespace metronome
