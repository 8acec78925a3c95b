// SPDX-License-Identifier: Apache-2.0
// The serving loop: submit, plan, execute, commit. The same code drives simulation and hardware;
// only the injected Executor and Clock differ.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/engine/arrival_gate.h"
#include "core/engine/arrival_source.h"
#include "core/engine/clock.h"
#include "core/engine/event.h"
#include "core/engine/executor.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/request.h"
#include "core/engine/scheduler.h"
#include "core/engine/step_plan.h"

namespace metronome {

struct EngineSetup {
  SchedulerConfig scheduler;
  KvCacheLayout kv_cache;
  std::int32_t max_num_seqs = 1;
  std::int32_t max_model_len = 1;         // prompt + output tokens of one request
  std::int32_t max_waiting_requests = 0;  // 0 = no limit
  std::int32_t async_depth = 1;           // steps in flight: 1 or 2
  StepShape step_shape = StepShape::Mixed;
  bool ignores_eos = false;                // requests do, unless their RequestSpec says
  StepTimePredictor* predictor = nullptr;  // outlives the engine; for policies that need one
  EncoderSetup encoder;                    // of models with images; `items` outlives the engine
  // Creates the scheduler instead of the policy that `scheduler` names; empty: use that policy.
  std::function<std::unique_ptr<Scheduler>(const SchedulerContext&)> make_scheduler;
};

// The result of a submission.
struct Submission {
  RequestId id = kNoRequest;
  EndReason refusal = EndReason::None;  // QueueFull or NeverFits: the request has ended already
  std::string message;                  // the reason, if rejected

  bool accepted() const { return refusal == EndReason::None; }
};

struct RunProgress {
  std::size_t num_ended = 0;
  std::size_t num_total = 0;
  TimeNs now = 0;
};
// Called from time to time during run(); returning false ends the run early.
using ProgressFn = std::function<bool(const RunProgress&)>;

class Engine {
 public:
  // `executor`, `clock`, `sinks` and `hasher` outlive the engine. Prefix caching needs the hasher.
  Engine(const EngineSetup& setup, Executor& executor, Clock& clock,
         std::span<EventSink* const> sinks, const PrefixHasher* hasher = nullptr);

  // Submits a request that arrived at spec.arrival <= clock.now(). It is rejected when the queue is
  // full or it can never fit. Then it ends at once, with the reason.
  Submission submit(const RequestSpec& spec);

  // Ends a request in any state and frees its blocks before the next plan. Returns false when it
  // has already ended.
  bool abort(RequestId id);

  // Called before each step(), and by run(): whether requests that arrived are submitted before it
  // (receive_interval() of the scheduler's settings).
  bool receives() { return gate_.receives(had_prompts_); }

  // Plans and launches one step if there is something to compute. Collects the oldest step in
  // flight when the pipeline is full or no step was launched. Returns false when neither happened:
  // the engine waits for arrivals, or until wake_time().
  bool step();

  // Steps until every request has ended.
  void drain();

  // Submits arrivals when they are due and steps until all requests have ended. Forgets ended
  // requests on the way. Calls `progress` every `steps_per_progress` steps; returns false when it
  // ended the run early. Throws InvariantError if requests remain that can never be scheduled.
  bool run(ArrivalSource& arrivals, const ProgressFn& progress = {},
           std::int64_t steps_per_progress = 1024);

  // Frees the state of requests that ended long enough ago; their ids must not be used again. Call
  // it from time to time in runs without end. Cost: O(requests kept).
  void forget_ended();

  // Removes all free blocks from the prefix cache.
  void reset_prefix_cache() {
    if (kv_cache_.caches_prefixes()) kv_cache_.forget(kv_cache_.pool().freed_blocks());
  }

  bool has_work() const { return scheduler_->has_work() || num_in_flight_ > 0; }
  TimeNs wake_time() const { return scheduler_->wake_time(); }
  const RequestTable& requests() const { return requests_; }
  const KvCacheManager& kv_cache() const { return kv_cache_; }
  std::size_t num_ended() const { return num_ended_; }
  std::int64_t num_steps() const { return next_step_index_; }
  // See Scheduler::remark().
  std::string remark() const { return scheduler_->remark(); }
  // The message of the first request that ended for `reason`; empty if none did.
  const std::string& first_message(EndReason reason) const {
    return first_messages_[static_cast<std::size_t>(reason)];
  }

  // Throws InvariantError when bookkeeping is inconsistent: blocks, tables and capacities. With no
  // step in flight it also checks each request's computed and cached tokens. Cost: O(blocks +
  // requests).
  void check_integrity() const;

 private:
  EndReason refusal_for(const RequestSpec& spec, std::string& message) const;
  bool plan_and_launch();
  void collect_and_commit();
  void emit(EventKind kind, const Request& request, EndReason reason = EndReason::None);
  void emit_ended(const Request& request, const std::string& message);
  void emit_step(const StepPlan& plan, const StepResult& result);
  StepRecord record_of(const StepPlan& plan) const;
  void emit_repeats(const StepPlan& last, std::span<const StepTimes> times);
  void repeat_step(const ArrivalSource& arrivals, std::int64_t max_steps);
  StepPlan& plan_of(std::int64_t step) {
    return plans_[static_cast<std::size_t>(step % kMaxInFlight)];
  }
  void submit_due(ArrivalSource& arrivals);
  bool wait_for_work(ArrivalSource& arrivals);

  EngineSetup setup_;
  Executor& executor_;
  Clock& clock_;
  std::vector<EventSink*> sinks_;
  RequestTable requests_;
  KvCacheManager kv_cache_;
  std::unique_ptr<Scheduler> scheduler_;

  std::array<StepPlan, kMaxInFlight> plans_;  // see plan_of()
  CommitReport report_;
  std::vector<ScheduledChunk> listed_;  // scratch of emit_step()
  std::vector<StepTimes> repeats_;      // scratch of repeat_step(); empty: a sink lists all chunks
  std::int64_t next_step_index_ = 0;
  std::int64_t num_in_flight_ = 0;
  std::int64_t next_sequence_ = 0;
  ArrivalGate gate_;
  bool had_prompts_ = false;       // the last plan
  TimeNs next_arrival_ = 0;        // nothing arrives before, unless a request ends
  std::int64_t arrival_step_ = 0;  // counts plans, for workloads with arrivals by step
  // For each full group of requests: the plan at which all had ended; kNever: not yet.
  std::vector<std::int64_t> groups_over_at_;
  std::size_t first_kept_ = 0;  // groups before are forgotten
  std::size_t num_ended_ = 0;
  std::size_t num_reported_ = 0;                 // of those, reported to the arrival source
  std::int32_t num_unrecorded_preemptions_ = 0;  // by plans with nothing to compute
  std::vector<std::uint64_t> unreported_freed_;  // StepPlan::freed_contents of such plans
  std::array<std::string, kNumEndReasons> first_messages_;
};

}  // namespace metronome
