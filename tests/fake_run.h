// SPDX-License-Identifier: Apache-2.0
// An engine made of paper: tests say what happens, sinks see the events a real engine would send,
// and the time of every token is kept one by one, to compare with.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/event.h"
#include "core/engine/request.h"

namespace metronome::testing {

struct FakeChunk {
  RequestId request;
  ChunkKind kind = ChunkKind::Decode;
  std::int32_t first_position = 0;
  std::int32_t num_tokens = 1;
  bool is_emitted = true;
};

inline FakeChunk decode(RequestId request, bool is_emitted = true) {
  return {request, ChunkKind::Decode, 0, 1, is_emitted};
}
inline FakeChunk prefill(RequestId request, std::int32_t first_position, std::int32_t num_tokens,
                         bool is_emitted) {
  return {request, ChunkKind::Prefill, first_position, num_tokens, is_emitted};
}

class FakeRun {
 public:
  explicit FakeRun(std::vector<EventSink*> sinks) : sinks_(std::move(sinks)) {}

  // Counts for the record of the next step.
  StepRecord next;
  // [request]: the time of each token, and the step that gave it.
  std::vector<std::vector<TimeNs>> token_times;
  std::vector<std::vector<std::int32_t>> token_steps;

  // A request that the engine knows but has not accepted.
  RequestId arrive(TimeNs arrival, std::int32_t num_prompt_tokens, std::int32_t priority = 0,
                   std::int32_t max_output_tokens = 1) {
    const Request& request = table_.add({arrival, num_prompt_tokens, max_output_tokens, priority});
    token_times.emplace_back();
    token_steps.emplace_back();
    return request.id;
  }
  RequestId submit(TimeNs arrival, std::int32_t num_prompt_tokens, std::int32_t priority = 0) {
    const RequestId id = arrive(arrival, num_prompt_tokens, priority);
    send(EventKind::Submitted, id, arrival);
    return id;
  }
  void admit(RequestId id, TimeNs time) { send(EventKind::Admitted, id, time); }
  void preempt(RequestId id, TimeNs time) { send(EventKind::Preempted, id, time); }
  void end(RequestId id, TimeNs time, EndReason reason = EndReason::Length) {
    send(EventKind::Ended, id, time, reason);
  }

  // Plans and starts the step at `started_at`.
  void step(TimeNs started_at, TimeNs finished_at, const std::vector<FakeChunk>& chunks) {
    std::vector<ScheduledChunk> scheduled;
    next.sequence = sequence_++;
    next.planned_at = started_at;
    next.started_at = started_at;
    next.finished_at = finished_at;
    for (const FakeChunk& chunk : chunks) {
      scheduled.push_back({chunk.request, chunk.first_position, chunk.num_tokens, chunk.kind,
                           chunk.is_emitted, std::uint8_t{chunk.is_emitted}});
      (chunk.kind == ChunkKind::Prefill ? next.num_prefill_tokens : next.num_decode_tokens) +=
          chunk.num_tokens;
      if (!chunk.is_emitted) continue;
      ++table_[chunk.request].output_tokens;
      token_times[index(chunk.request)].push_back(finished_at);
      token_steps[index(chunk.request)].push_back(static_cast<std::int32_t>(next.step_index));
    }
    for (EventSink* sink : sinks_) sink->on_step(next, scheduled, table_);
    const std::int64_t step_index = next.step_index + 1;
    next = {};
    next.step_index = step_index;
  }

 private:
  void send(EventKind kind, RequestId id, TimeNs time, EndReason reason = EndReason::None) {
    const Event event{time, sequence_++, kind, reason, id};
    for (EventSink* sink : sinks_) sink->on_event(event, table_[id]);
  }

  std::vector<EventSink*> sinks_;
  RequestTable table_;
  std::int64_t sequence_ = 0;
};

}  // namespace metronome::testing
