// SPDX-License-Identifier: Apache-2.0
// The base of all scheduling policies: queue, running list, admission, chunks, preemption and
// commit. A policy implements fill_plan(), which decides how to fill a step. It calls either the
// basic operations (start, add_chunk, preempt, refuse, give_up) or the decode-first helpers built
// on them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/engine/decode_run.h"
#include "core/engine/encoder_cache.h"
#include "core/engine/engine_config.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/request.h"
#include "core/engine/scheduler_config.h"
#include "core/engine/step_plan.h"
#include "core/engine/step_predictor.h"
#include "core/engine/waiting_queue.h"

namespace metronome {

struct SchedulerContext {
  const SchedulerConfig& config;
  std::int32_t max_num_seqs;
  std::int32_t max_model_len;
  StepShape step_shape;     // Mixed or Separate
  bool plans_runs = false;  // see Executor::takes_runs()
  KvCacheManager& kv_cache;
  RequestTable& requests;
  StepTimePredictor* predictor = nullptr;  // for policies that use predicted times
  EncoderSetup encoder = {};               // of models with images

  SchedulerContext with(const SchedulerConfig& other) const {
    return {other,    max_num_seqs, max_model_len, step_shape, plans_runs,
            kv_cache, requests,     predictor,     encoder};
  }
  SchedulerContext without_runs() const {
    SchedulerContext context = *this;
    context.plans_runs = false;
    return context;
  }
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

constexpr std::int32_t kNoRunStep = -1;

class Scheduler {
 public:
  explicit Scheduler(const SchedulerContext& context);
  virtual ~Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void enqueue(Request& request) {
    on_enqueue(request);
    waiting_.push_back(request);
  }

  // Why such a request could never be served, even by an empty cache; empty if it could.
  virtual std::string refusal(const RequestSpec& spec) const;

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
  void plan_repeats(std::span<StepTimes> steps);
  void commit_repeats(std::int32_t num_steps);

  // Ends a request in any state that has not ended. Drops the tokens of its steps in flight.
  void abort(Request& request);

  // The earliest time at which plan() may find work without a new event. kNever when only arrivals
  // or results can change that.
  virtual TimeNs wake_time() const {
    return has_evicted_ ? 0 : kNever;  // the plan only preempted, so the next has room
  }

  // The policy's remark on its decisions for users who read the results; usually empty.
  virtual std::string remark() const { return {}; }

  const WaitingQueue& waiting() const { return waiting_; }
  const EncoderCache* encoder() const { return encoder_ ? &*encoder_ : nullptr; }
  // Throws InvariantError unless the encoder cache agrees with the requests that hold its entries.
  void check_encoder() const;
  // In service order. Includes the requests that ended since the last plan.
  const std::vector<Request*>& running() const { return running_; }
  std::size_t num_waiting() const { return waiting_.size(); }
  std::size_t num_running() const { return running_.size() - ended_running_.size(); }
  bool has_work() const { return num_running() > 0 || !waiting_.empty(); }

 protected:
  virtual void fill_plan() = 0;
  // Checked against every plan.
  virtual std::int64_t max_tokens_per_step() const { return INT64_MAX; }
  virtual std::int64_t max_running() const { return max_num_seqs_; }
  // Called after the result of a plan is committed, before the next plan.
  virtual void on_commit(const StepPlan&, const StepResult&, const CommitReport&) {}
  // Called before a new request joins the queue.
  virtual void on_enqueue(Request&) {}
  // Called when a chunk that completes a prompt has given its token and the request goes on.
  virtual void on_prompt_committed(Request&, const ScheduledChunk&) {}
  // Whether a request that was preempted while a step computed it gets that step's token (vLLM).
  virtual bool takes_token_of_preempted() const { return true; }
  // Called before a request ends for this reason; it still has its blocks.
  virtual void on_end(const Request&, EndReason) {}
  // Puts a preempted request back into the queue.
  virtual void requeue(Request& request) { waiting_.push_front(request); }

  // Starts the head of the queue, last in service order. It takes the blocks of `hit`, whose tokens
  // count as computed, and new ones for positions [0, num_positions). These must be free.
  void start(Request& request, const PrefixHit& hit, std::int32_t num_positions);
  // Plans the next `num_tokens` tokens of a running request, which must have room for them. All but
  // the first token of a decode are drafts.
  void add_chunk(Request& request, std::int32_t num_tokens);
  // Takes the last uncomputed token of a running prompt for a decode, so that drafts may follow it.
  void begin_decode(Request& request);
  // Returns a running request to the queue to be recomputed. It loses its blocks and its chunk in
  // this plan, if any.
  void preempt(Request& victim);
  // Ends the head of the queue, which can never be served.
  void refuse(Request& request);
  // Fails a running request that has no room, with the reason of a failed step.
  void give_up(Request& request);
  // As many of the next `num_tokens` tokens from `first` on as the encoder's budget and cache allow
  // (EncoderCache::fit). Requires `num_lookahead` tokens that a drafter reads behind them. Call it
  // before the request gets its blocks, and then add_chunk() or release_encoded().
  std::int32_t fit_to_encoder(const Request& request, std::int32_t first, std::int32_t num_tokens,
                              std::int32_t num_lookahead) {
    return encoder_ ? encoder_->fit(request.id, first, num_tokens, num_lookahead) : num_tokens;
  }
  // Gives back what a request holds of the encoder cache.
  void release_encoded(const Request& request) {
    if (encoder_) encoder_->release(request.id);
  }
  // Tokens of the chunk of `request` in this plan; 0 without a chunk.
  std::int32_t num_planned_tokens(const Request& request) const;

  // Plans the run: a decode for each of the first requests of the running list, as far as they have
  // one. A policy that decodes in the order of this list calls it before it plans anything else.
  // Returns how many requests of the list the policy is done with. If each decode needs a free
  // block, though it may not take it, a run that might lack one ends: the policy then decides for
  // each request.
  std::size_t plan_run(bool needs_free_block = false);

  // Plans one token for every running request with a computed prompt, in service order. Preempts
  // when the pool runs out.
  void plan_decodes();
  std::int32_t num_decodable() const;

  // Running requests with uncomputed prompt tokens, in queue order. Valid until the next call. An
  // entry that was preempted since is no longer in state Prefill.
  const std::vector<Request*>& unfinished_prefills();
  std::int32_t num_unfinished_prefills() const {
    return static_cast<std::int32_t>(prefilling_.size());
  }
  // Plans the next `num_tokens` of a running prompt. Returns false when preempting all requests
  // after it would not give it room. Then it preempts none; the request keeps its blocks and waits
  // a step.
  bool plan_prefill(Request& request, std::int32_t num_tokens);

  // The next request to admit. nullptr when the running list is full, the queue is empty, or this
  // plan has preempted (admission would take the blocks freed for another request).
  Request* next_waiting();
  // Admits a queued request with a first chunk of `num_tokens`. Requires that next_waiting() is not
  // nullptr. Returns false, and leaves it queued, when too few blocks are free for its whole prompt
  // plus the needs of unfinished prefills. O(queue) when it is not the head.
  bool admit(Request& request, std::int32_t num_tokens);

  // The plan's requests that sample get so many drafts (StepPlan::num_next_drafts).
  void propose_drafts(std::int32_t num_drafts) { plan_->num_next_drafts = num_drafts; }

  const StepPlan& current_plan() const { return *plan_; }
  TimeNs now() const { return plan_->planned_at; }
  const SchedulerConfig& config() const { return config_; }
  RequestTable& requests() { return requests_; }
  WaitingQueue& queue() { return waiting_; }
  std::vector<Request*>& running_list() {  // a policy may change its order
    end_run();
    return running_;
  }
  // The running list behind the members of the run, who all decode. A policy may change its order.
  std::span<Request*> running_behind_run() { return std::span(running_).subspan(num_covered_); }
  // Sorts the running list by arrival.
  void sort_running_by_arrival();
  KvCacheManager& kv_cache() { return kv_cache_; }
  const KvCacheManager& kv_cache() const { return kv_cache_; }
  std::int32_t max_num_seqs() const { return max_num_seqs_; }
  std::int32_t max_model_len() const { return max_model_len_; }
  bool nothing_runs() const { return running_.empty(); }

 private:
  void retire();
  // Of models with images; in scheduler_encoder.cpp.
  void plan_encodings(const Request& request, std::int32_t num_tokens);
  void release_computed_items(const Request& request);
  template <class FailOne>
  void fail_encodings(const StepPlan& plan, const FailOne& fail_one);
  // Of the run of decodes; in scheduler_run.cpp.
  void begin_run_plan();
  std::int32_t position_in_run(const Request& request) const {
    return request.computed_tokens + run_clock_.num_planned - request.run_begin;
  }
  void enter_in_calendar(const RunCalendar::Entry& entry, std::int32_t position, std::int32_t step);
  void write_run(std::size_t num_members);
  void end_run();
  void extend_run();
  std::int32_t begin_run_commit(StepPlan& plan, const StepResult& result, CommitReport& report);
  void commit_run(const StepPlan& plan, CommitReport& report);
  void leave_run(Request& request);
  bool can_make_room(const Request& request, std::int32_t num_positions) const;
  bool make_room(Request& request, std::int32_t num_positions);
  void unschedule(Request& request);
  void join(Request& request, bool by_priority);
  void build_passes();
  void leave_running(Request& request);
  void end(Request& request, RequestState state, EndReason reason);
  void close(Request& request, RequestState state, EndReason reason);
  void commit_outputs(StepPlan& plan, const StepResult& result, std::int32_t run_step,
                      CommitReport& report);
  void commit_tokens(StepPlan& plan, const StepResult& result, CommitReport& report);
  // Of a step with drafts; in scheduler_drafts.cpp.
  struct ChunkOutput;
  void commit_drafts(StepPlan& plan, const StepResult& result, CommitReport& report);
  void commit_output(Request& request, ScheduledChunk& chunk, const ChunkOutput& output,
                     CommitReport& report);
  template <class TakeToken, class DropToken>
  void commit_chunks(StepPlan& plan, const TakeToken& take_token, const DropToken& drop_token,
                     std::int32_t run_step, CommitReport& report);
  void fail(const StepPlan& plan, CommitReport& report);
  void finish(Request& request, EndReason reason, CommitReport& report);

  SchedulerConfig config_;
  std::int32_t max_num_seqs_;
  std::int32_t max_model_len_;
  StepShape step_shape_;
  KvCacheManager& kv_cache_;
  RequestTable& requests_;
  WaitingQueue waiting_;
  std::optional<EncoderCache> encoder_;  // empty: a model without images
  // In service order: admission order, or under `priority` by priority and then submission. The
  // last one is preempted first. Ended requests are removed at the next plan.
  std::vector<Request*> running_;
  std::vector<Request*> prefilling_;        // running requests in state Prefill, in admission order
  std::vector<Request*> ordered_prefills_;  // scratch of unfinished_prefills()
  std::vector<ScheduledChunk> decodes_;     // scratch of plan_decodes()
  std::vector<const Request*> ended_running_;  // that running_ still has
  StepPlan* plan_ = nullptr;                   // while planning
  bool has_evicted_ = false;                   // this plan moved a request back to the queue

  // The run of decodes. The first num_covered_ requests of running_ are its members, in order, and
  // between them requests whose last token is in flight or that have ended.
  const bool plans_runs_;
  bool takes_run_ = false;         // this plan's policy goes on with the run
  bool steps_run_ = false;         // the current plan has the run, or the last one had
  bool has_only_run_ = false;      // the last plan; it left all else as it was
  bool needs_free_block_ = false;  // see plan_run()
  RunClock run_clock_;
  RunMembers run_;
  std::vector<Request*> run_requests_;  // of run_; behind them those that join with the next plan
  std::size_t num_covered_ = 0;
  bool covers_by_arrival_ = true;  // the first num_covered_ requests are in order of arrival
  RunCalendar calendar_;
  std::int64_t next_run_order_ = 0;
  std::vector<Request*> last_decodes_;  // members that took their last token in the last plan
  PlannedRun run_changes_;              // since the last plan with chunks
  // The run as of the steps that are committed.
  RunMembers committed_run_;
  std::vector<ScheduledChunk> joining_;  // of the last committed step
  bool stepped_run_ = false;             // the last committed step had the run
  bool sinks_follow_run_ = true;         // as members; else each step lists its decodes
  std::int32_t num_lost_steps_ = 0;      // up to this one a request lost a token
};

}  // namespace metronome
