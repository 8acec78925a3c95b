// SPDX-License-Identifier: Apache-2.0
// Plans steps and commits their results: the books (books.h), and a policy (policy.h) beside them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/engine/books.h"
#include "core/engine/decode_run.h"
#include "core/engine/policy.h"
#include "core/engine/request.h"
#include "core/engine/step_plan.h"

namespace metronome {

constexpr std::int32_t kNoRunStep = -1;

class Scheduler final {
 public:
  Scheduler(const BooksSetup& setup, const PolicyContext& context, std::unique_ptr<Policy> policy);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void enqueue(Request& request) {
    policy_->on_enqueue(books_, request);
    books_.waiting_.push_back(request);
  }

  // Plans one step and advances the counts of its requests. Leaves the plan empty when nothing can
  // be computed now.
  void plan(StepPlan& plan, std::int64_t step_index, TimeNs now);

  // Commits the result of an earlier plan. It appends tokens, ends requests, frees their blocks,
  // and marks the chunks that gave a token. It drops tokens after the one that ends a request, in
  // this step and in the step in flight. That step may still write to the freed blocks. Steps
  // execute in order, so the blocks' next owner writes later. A failed step fails the requests of
  // its plan and those that use its unfilled blocks. Plans are committed in order.
  void commit(StepPlan& plan, const StepResult& result, CommitReport& report);

  // How many plans after the last one would have the same run and nothing else, if no request comes
  // or ends meanwhile.
  std::int32_t num_repeats() const;
  // Plans so many steps, each behind the commit of one, and notes the blocks in use. Counts so many
  // as committed.
  void plan_repeats(std::span<StepTimes> steps) { books_.run_.plan_repeats(steps); }
  void commit_repeats(std::int32_t num_steps);

  // Ends a request in any state that has not ended. Drops the tokens of its steps in flight.
  void abort(Request& request);

  std::string refusal(const RequestSpec& spec) const { return policy_->refusal(books_, spec); }
  TimeNs wake_time() const { return policy_->wake_time(books_); }
  const Policy& policy() const { return *policy_; }

  const WaitingQueue& waiting() const { return books_.waiting_; }
  const EncoderCache* encoder() const { return books_.encoder_ ? &*books_.encoder_ : nullptr; }
  // Throws InvariantError unless the encoder cache agrees with the requests that hold its entries.
  void check_encoder() const;
  const std::vector<Request*>& running() const { return books_.running_; }
  std::size_t num_waiting() const { return waiting().size(); }
  std::size_t num_running() const { return books_.num_running(); }
  bool has_work() const { return num_running() > 0 || !waiting().empty(); }

 private:
  std::int32_t begin_run_commit(StepPlan& plan, const StepResult& result, CommitReport& report);
  void commit_run(const StepPlan& plan, CommitReport& report);
  void commit_outputs(StepPlan& plan, const StepResult& result, std::int32_t run_step,
                      CommitReport& report);
  void commit_tokens(StepPlan& plan, const StepResult& result, CommitReport& report);
  // Of a step with drafts; in scheduler_drafts.cpp.
  struct ChunkOutput;
  void commit_drafts(StepPlan& plan, const StepResult& result, CommitReport& report);
  void commit_output(Request& request, ScheduledChunk& chunk, const ChunkOutput& output,
                     CommitReport& report);
  template <class AcceptToken, class DropToken>
  void commit_chunks(std::span<ScheduledChunk> chunks, const AcceptToken& accept_token,
                     const DropToken& drop_token, std::int32_t run_step, CommitReport& report);
  void release_computed_items(const Request& request);
  void fail(const StepPlan& plan, CommitReport& report);
  template <class FailOne>
  void fail_encodings(const StepPlan& plan, const FailOne& fail_one);
  void finish(Request& request, EndReason reason, CommitReport& report);

  std::unique_ptr<Policy> policy_;
  Books books_;
  // The run as of the steps that are committed.
  RunMembers committed_run_;
  std::vector<ScheduledChunk> joining_;  // of the last committed step
  bool stepped_run_ = false;             // the last committed step had the run
  bool sinks_follow_run_ = true;         // as members; else each step lists its decodes
};

}  // namespace metronome
