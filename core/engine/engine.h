// SPDX-License-Identifier: Apache-2.0
// Serving, turn by turn: receive, plan, launch; commit. The caller says when; drive.h has the loop
// that does it on a clock. The same code serves in simulation and on hardware, by another Executor.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/engine/arrival_gate.h"
#include "core/engine/event.h"
#include "core/engine/executor.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/policy.h"
#include "core/engine/request.h"
#include "core/engine/request_source.h"
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
  // Makes the policy instead of the one that `scheduler` names; empty: that one.
  std::function<std::unique_ptr<Policy>(const PolicyContext&)> make_policy;
};

// The result of a submission.
struct Submission {
  RequestId id = kNoRequest;
  EndReason refusal = EndReason::None;  // QueueFull or NeverFits: the request has ended already
  std::string message;                  // the reason, if rejected

  bool accepted() const { return refusal == EndReason::None; }
};

// The first request that ended for a reason, and its message.
struct FirstFailure {
  RequestId request = kNoRequest;
  std::string text;  // empty: none did
};

class Engine {
 public:
  // `executor`, `sinks` and `hasher` outlive the engine. Prefix caching needs the hasher.
  Engine(const EngineSetup& setup, Executor& executor, std::span<EventSink* const> sinks,
         const PrefixHasher* hasher = nullptr);

  // Before each plan the engine receives requests from `source`, which outlives it. Then it forgets
  // requests on the way, some time after they ended.
  void receive_from(RequestSource& source) { source_ = &source; }

  // Submits a request that has arrived, at now() or at spec.arrival if that is later. It is
  // rejected when the queue is full or it can never fit. Then it ends at once, with the reason. An
  // engine that receives requests before some plans only (ArrivalGate) does so from a source.
  Submission submit(const RequestSpec& spec);

  // Ends a request in any state and frees its blocks before the next plan. Returns false when it
  // has already ended.
  bool abort(RequestId id);

  // Frees the blocks of a request that ended as HandedOver: the other engine has its KV.
  void release(RequestId id);

  // ---- Time is the caller's: the engine waits for nothing ----

  // The time of the last turn, or of the last step that was committed.
  TimeNs now() const { return now_; }

  // From when on the next turn can be taken; not before now(). Of a step whose executor does not
  // know when it ends: now(), and the turn collects it. kNever: the engine is idle until a request
  // comes.
  TimeNs next_time() const;

  // Commits the oldest step in flight if awaits_step(). Otherwise receives requests, plans, and
  // launches a step if there is something to compute. Requires `now` >= next_time(), unless the
  // engine is idle. `max_steps`: steps that are like the last one may be taken together, as long as
  // num_steps() does not exceed it.
  void take_turn(TimeNs now, std::int64_t max_steps = INT64_MAX) {
    take_turn(now, kNever, source_ != nullptr ? max_steps : 0);
  }

  // Takes all turns that are possible before `until`. A step that ends at `until` or later stays in
  // flight, unless its executor does not know when it ends.
  void advance(TimeNs until) {
    if (defers_repeats_) repeat_deferred(until);
    for (TimeNs next = next_time(); next < until; next = next_time()) {
      take_turn(next, until, INT64_MAX);
    }
  }

  // Takes turns before `until`, as advance(). Leaves out steps that are like the last one if it
  // knows that they go on until then: nothing happens to a request in them, and the next call of
  // either function takes them. So a caller with many engines need not follow each of them. Returns
  // a time before which nothing happens to a request if none comes.
  TimeNs advance_to_change(TimeNs until);

  // Whether nothing is planned before a step in flight is committed: as many are in flight as may
  // be, or the last plan was empty.
  bool awaits_step() const {
    return num_in_flight_ == setup_.async_depth || (num_in_flight_ > 0 && !has_launched_);
  }
  // Whether nothing is in flight and the last plan was empty: the engine waits for requests, or
  // until wake_time().
  bool is_idle() const { return is_idle_; }

  // Removes all blocks that no request holds from the prefix cache.
  void reset_prefix_cache() {
    kv_cache_.make_free(kv_cache_.num_blocks());
    if (kv_cache_.caches_prefixes()) kv_cache_.forget(kv_cache_.pool().freed_blocks());
  }

  std::size_t num_waiting() const { return scheduler_->num_waiting(); }
  std::size_t num_running() const { return scheduler_->num_running(); }
  bool has_work() const { return scheduler_->has_work() || num_in_flight_ > 0; }
  TimeNs wake_time() const { return scheduler_->wake_time(); }
  const RequestTable& requests() const { return requests_; }
  const KvCacheManager& kv_cache() const { return kv_cache_; }
  std::size_t num_ended() const { return num_ended_; }
  std::int64_t num_steps() const { return next_step_index_; }
  std::int64_t num_plans() const { return num_plans_; }  // of steps, and empty ones
  // See Policy::remark().
  std::string remark() const { return scheduler_->policy().remark(); }
  const FirstFailure& first_failure(EndReason reason) const {
    return first_failures_[static_cast<std::size_t>(reason)];
  }
  // It as a sentence; empty if none did.
  std::string first_message(EndReason reason) const;

  // Throws InvariantError when bookkeeping is inconsistent: blocks, tables and capacities. With no
  // step in flight it also checks each request's computed and cached tokens. Cost: O(blocks +
  // requests).
  void check_integrity() const;

 private:
  EndReason refusal_for(const RequestSpec& spec, std::string& message) const;
  std::string handover_refusal() const;
  void take_turn(TimeNs now, TimeNs horizon, std::int64_t max_steps);
  void receive_and_plan();
  // Frees the state of requests that ended long enough ago. Cost: O(requests kept).
  void forget_ended();
  bool plan_and_launch();
  void collect_and_commit();
  void emit(EventKind kind, const Request& request, EndReason reason = EndReason::None);
  void emit_ended(const Request& request, const std::string& message);
  void emit_step(const StepPlan& plan, const StepResult& result);
  StepRecord record_of(const StepPlan& plan) const;
  void emit_repeats(const StepPlan& last, std::span<const StepTimes> times);
  // Steps that could be taken together, if so many are wanted, and the time before which they are
  // planned.
  struct Repeats {
    std::int64_t num_steps = 0;
    TimeNs until = 0;
  };
  Repeats possible_repeats(TimeNs horizon, std::int64_t max_steps) const;
  void repeat_step(TimeNs horizon, std::int64_t max_steps);
  void repeat_deferred(TimeNs horizon);
  TimeNs end_of_deferred();
  StepPlan& plan_of(std::int64_t step) {
    return plans_[static_cast<std::size_t>(step % kMaxInFlight)];
  }

  EngineSetup setup_;
  Executor& executor_;
  RequestSource* source_ = nullptr;
  std::vector<EventSink*> sinks_;
  RequestTable requests_;
  KvCacheManager kv_cache_;
  std::optional<Scheduler> scheduler_;

  std::array<StepPlan, kMaxInFlight> plans_;  // see plan_of()
  CommitReport report_;
  std::vector<ScheduledChunk> listed_;  // scratch of emit_step()
  std::vector<StepTimes> repeats_;      // scratch of repeat_step(); empty: a sink lists all chunks
  TimeNs now_ = 0;
  std::int64_t next_step_index_ = 0;
  std::int64_t next_sweep_ = RequestTable::kStepsPerSweep;  // at this step
  std::int64_t num_in_flight_ = 0;
  std::int64_t num_plans_ = 0;
  std::int64_t next_sequence_ = 0;
  ArrivalGate gate_;
  bool had_prompts_ = false;   // the last plan
  bool has_launched_ = false;  // a step, by the last plan
  bool is_idle_ = false;
  bool may_defer_ = false;       // advance_to_change() takes the turn
  bool defers_repeats_ = false;  // it has left out repeats, if there are any
  // For each full group of requests: the plan at which all had ended; kNever: not yet.
  std::vector<std::int64_t> groups_over_at_;
  std::size_t first_kept_ = 0;  // groups before are forgotten
  std::size_t num_ended_ = 0;
  std::int32_t num_unrecorded_preemptions_ = 0;  // by plans with nothing to compute
  std::vector<std::uint64_t> unreported_freed_;  // StepPlan::freed_contents of such plans
  std::array<FirstFailure, kNumEndReasons> first_failures_;
};

}  // namespace metronome
