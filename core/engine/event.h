// SPDX-License-Identifier: Apache-2.0
// The engine's single, totally ordered event stream. Metrics, digests, logs and traces are computed
// from it. The engine has no other output.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "core/engine/request.h"
#include "core/engine/step_plan.h"

namespace metronome {

enum class EventKind : std::uint8_t {
  Submitted,   // accepted into the waiting queue
  Admitted,    // taken from the queue, first chunk planned (again after each preemption)
  FirstToken,  // the first output token is available
  Preempted,   // KV released, back in the queue
  Ended,       // Finished or Failed; `reason` has the cause
};

struct Event {
  TimeNs time = 0;
  std::int64_t sequence = 0;  // position in the total order, shared with StepRecord::sequence
  EventKind kind = EventKind::Submitted;
  EndReason reason = EndReason::None;  // Ended only
  RequestId request = kNoRequest;
};

class RunMembers;

// A committed step's part of a run of decodes (core/engine/decode_run.h). All its chunks gave a
// token.
struct CommittedRun {
  const RunMembers* members = nullptr;  // nullptr: the step computed no run
  std::size_t place = 0;                // so many of the step's other chunks come before the run's
  std::span<const RequestId> left;      // members before; they may be among the step's chunks
  std::span<const RequestId> joined;    // members from the next step on; each got a token in this
};

// One committed step. Times satisfy planned_at <= started_at <= finished_at.
struct StepRecord {
  std::int64_t sequence = 0;
  std::int64_t step_index = 0;
  TimeNs planned_at = 0;
  TimeNs started_at = 0;
  TimeNs finished_at = 0;
  std::int32_t num_prefill_tokens = 0;
  std::int32_t num_decode_tokens = 0;
  std::int32_t num_running = 0;      // after planning
  std::int32_t num_waiting = 0;      // after planning
  std::int32_t num_used_blocks = 0;  // after planning
  std::int32_t num_preempted = 0;
  bool failed = false;
  CommittedRun run = {};               // valid during on_step()
  const StepResult* result = nullptr;  // valid during on_step()
};

// A replica of a fleet comes or goes.
enum class FleetChange : std::uint8_t {
  Failed,     // its requests are retried or lost
  Recovered,  // it takes requests again, with an empty cache
  Added,      // it starts
  Ready,      // it has started, and takes requests
  Draining,   // it gets no more requests
  Removed,    // it is gone: it has no more
};
std::string_view to_string(FleetChange change);

struct FleetEvent {
  TimeNs time = 0;
  FleetChange change = FleetChange::Failed;
  std::int32_t replica = 0;
  std::string cause = {};  // in words; empty: it follows from an event before
  // Requests of a replica that failed: they began anew elsewhere, or failed with it.
  std::int64_t num_retried = 0;
  std::int64_t num_lost = 0;

  bool operator==(const FleetEvent&) const = default;
};

// One of several engines that share the requests of a run.
struct ReplicaScope {
  std::int32_t replica = 0;     // its number, from 0
  std::int64_t num_blocks = 0;  // of its KV cache
  // By RequestId of this engine: the request's number in the run. It grows as requests come. A
  // request that failed with its replica may come to another one.
  std::shared_ptr<const std::vector<std::uint32_t>> requests = {};
  // By RequestId: when the engine could see the request. Null: the front end alone says it.
  std::shared_ptr<const std::vector<TimeNs>> handed_over = {};
  bool starts_off = false;  // the replica is not there until it is added
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  // For a run of several engines: a part of this sink, which takes the events of one of them. The
  // sink itself takes what happens to requests in front of them, by their numbers in the run.
  // nullptr: this sink follows one engine only.
  virtual EventSink* of_replica(const ReplicaScope&) { return nullptr; }
  // Of a fleet. The sink itself takes it, and none of its parts.
  virtual void on_fleet_event(const FleetEvent&) {}
  // Whether the sink itself is told of requests that ended at replicas, and were not interrupted
  // there: on_replica_end() is called in an order that depends on the run alone, while no replica
  // advances, once for each. The ends of one replica are in the order of its events.
  virtual bool follows_ends() const { return false; }
  virtual void on_replica_end(std::int32_t /*replica*/) {}
  // `request` is the state right after the event.
  virtual void on_event(const Event& event, const Request& request) = 0;
  // Whether on_step() takes steps with a run, and on_repeats() follows those alike. Otherwise
  // `chunks` are all chunks of the step.
  virtual bool takes_runs() const { return false; }
  // Called once per committed step, before the Ended events it causes. chunk.num_emitted is set.
  virtual void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
                       const RequestTable& requests) = 0;
  // Called when steps at these times followed that were like `last`, the step before, which had
  // nothing but its run. Each has the next sequence number and the next index.
  virtual void on_repeats(const StepRecord& /*last*/, std::span<const StepTimes> /*times*/) {}
};

}  // namespace metronome
