// SPDX-License-Identifier: Apache-2.0
// A scheduling policy: it decides what each step computes. The books (books.h) keep what is true
// and carry the decisions out. A policy of one's own begins with policies/chunked.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/books.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/request.h"
#include "core/engine/scheduler_config.h"
#include "core/engine/step_plan.h"
#include "core/engine/step_predictor.h"

namespace metronome {

// The settings and limits that a policy is made with.
struct PolicyContext {
  const SchedulerConfig& config;
  std::int32_t max_num_seqs;
  std::int32_t max_model_len;
  StepShape step_shape;  // Mixed or Separate
  const KvCacheManager& kv_cache;
  StepTimePredictor* predictor = nullptr;  // for policies that use predicted times
};

// The effects of committing a step; buffers are reused.
struct CommitReport {
  std::vector<RequestId> first_tokens;  // received their first token, in plan order
  std::vector<RequestId> ended;         // Finished or Failed, in plan order
  // The step's part of a run; see CommittedRun.
  const RunMembers* run = nullptr;
  std::vector<RequestId> left_run;
  std::vector<RequestId> joined_run;
};

class Policy {
 public:
  Policy() = default;
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // Fills the step that books.plan() has under construction. All else is optional.
  virtual void fill(Books& books) = 0;

  // Checked against every plan.
  virtual std::int64_t max_tokens_per_step() const { return INT64_MAX; }
  virtual std::int64_t max_running(const Books& books) const { return books.max_num_seqs(); }

  // ---- Asked once, before the first plan ----

  // The order of the queue.
  virtual QueueOrder order(const SchedulerConfig& config) const { return config.order; }
  // Whether plans alike may be taken together, without asking for each. No: it counts them.
  virtual bool may_repeat() const { return true; }

  // ---- Asked from outside of plans ----

  // Why such a request could never be served, even by an empty cache; empty if it could.
  virtual std::string refusal(const Books& books, const RequestSpec& spec) const {
    return books.refusal(spec);
  }
  // The earliest time at which fill() may find work without a new event. kNever when only arrivals
  // or results can change that.
  virtual TimeNs wake_time(const Books& books) const { return books.wake_time(); }
  // A remark on its decisions for users who read the results; usually empty.
  virtual std::string remark() const { return {}; }

  // ---- Told ----

  // A new request is about to join the queue.
  virtual void on_enqueue(Books&, Request&) {}
  // The result of a plan is committed.
  virtual void on_commit(Books&, const StepPlan&, const StepResult&, const CommitReport&) {}
  // A chunk that completes a prompt has given its token, and the request goes on.
  virtual void on_prompt_committed(Books&, Request&, const ScheduledChunk&) {}
  // A request is about to end for this reason; it still has its blocks.
  virtual void on_end(Books&, const Request&, EndReason) {}

  // ---- Rules ----

  // Puts a preempted request back into the queue.
  virtual void requeue(Books& books, Request& request) { books.waiting().push_front(request); }
  // Whether a request that was preempted while a step computed it gets that step's token (vLLM).
  virtual bool takes_token_of_preempted() const { return true; }
};

}  // namespace metronome
