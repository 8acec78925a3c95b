// What every scheduling policy shares: the queue, the running list, admission, chunks, preemption,
// and taking back the result of a step. A policy adds one function: in which order it hands out a
// step (fill_plan). It is made of the building blocks that keep the books (start, add_chunk,
// preempt, refuse, give_up), or of the decode-first helpers on top of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
  StepShape step_shape;  // Mixed or Separate
  KvCacheManager& kv_cache;
  RequestTable& requests;
  StepTimePredictor* predictor = nullptr;  // for policies that choose by time
};

// What committing a step did; buffers are reused from step to step.
struct CommitReport {
  std::vector<RequestId> first_tokens;  // got their first token, in plan order
  std::vector<RequestId> ended;         // Finished or Failed, in plan order
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerContext& context);
  virtual ~Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void enqueue(Request& request) { waiting_.push_back(request); }

  // Why a request like this could never be served, however empty the cache; empty if it could.
  virtual std::string refusal(const RequestSpec& spec) const;

  // Decides one step and advances the counts of the requests in it. Leaves the plan empty when
  // nothing can be computed now.
  void plan(StepPlan& plan, std::int64_t step_index, TimeNs now);

  // Takes the result of a plan made earlier: appends tokens, ends requests, frees their blocks, and
  // marks the chunks that gave a token. Tokens behind one that ends its request are dropped, in
  // this step and in the one in flight: that step may still write to the blocks, but steps execute
  // in order, so whoever gets them next writes later. A failed step ends exactly the requests of
  // its plan. Plans are committed in the order made.
  void commit(StepPlan& plan, const StepResult& result, CommitReport& report);

  // Ends a request that has not ended, wherever it is. Tokens of its steps in flight are dropped.
  void abort(Request& request);

  // The earliest time at which plan() may have something to do though nothing else happens;
  // kNever when only arrivals or results can change that.
  virtual TimeNs wake_time() const {
    return has_evicted_ ? 0 : kNever;  // a plan that could only preempt has made room for the next
  }

  // What somebody who reads the results should know of the policy's decisions; mostly nothing.
  virtual std::string remark() const { return {}; }

  const WaitingQueue& waiting() const { return waiting_; }
  // In service order. Those that ended since the last plan are still among them.
  const std::vector<Request*>& running() const { return running_; }
  std::size_t num_waiting() const { return waiting_.size(); }
  std::size_t num_running() const { return running_.size() - num_ended_running_; }
  bool has_work() const { return num_running() > 0 || !waiting_.empty(); }

 protected:
  virtual void fill_plan() = 0;
  // Checked against every plan.
  virtual std::int64_t max_tokens_per_step() const { return INT64_MAX; }
  virtual std::int64_t max_running() const { return max_num_seqs_; }
  // The result of a plan has been taken in. Before the next plan.
  virtual void on_commit(const StepPlan&, const StepResult&, const CommitReport&) {}
  // The request is about to end for this reason and still has its blocks.
  virtual void on_end(const Request&, EndReason) {}
  // Where a preempted request joins the queue.
  virtual void requeue(Request& request) { waiting_.push_front(request); }

  // The head of the queue starts to run, last in service order: it takes the blocks of `hit`, whose
  // tokens count as computed, and new ones for positions [0, num_positions). They have to be free.
  void start(Request& request, const PrefixHit& hit, std::int32_t num_positions);
  // The next `num_tokens` tokens of a running request are computed in this step. They have room.
  void add_chunk(Request& request, std::int32_t num_tokens);
  // A running request loses its blocks, and its chunk if this plan has one, and goes back to the
  // queue to be recomputed.
  void preempt(Request& victim);
  // The head of the queue ends: it can never be served.
  void refuse(Request& request);
  // A running request ends as a failed step would end it: there is no room for it.
  void give_up(Request& request);
  // Tokens of the chunk that this plan has for `request`; 0 when it has none.
  std::int32_t num_planned_tokens(const Request& request) const;

  // One token for every running request whose prompt is done, in service order. Preempts when
  // the pool runs out.
  void plan_decodes();
  std::int32_t num_decodable() const;

  // Running requests whose prompt is not done, in queue order. Valid until the next call; an
  // entry that was preempted meanwhile is no longer in state Prefill.
  const std::vector<Request*>& unfinished_prefills();
  std::int32_t num_unfinished_prefills() const {
    return static_cast<std::int32_t>(prefilling_.size());
  }
  // The next `num_tokens` of a running prompt. False when even preempting everyone behind it would
  // not give it room: nobody is preempted, it keeps what it has and waits a step.
  bool plan_prefill(Request& request, std::int32_t num_tokens);

  // The request that would be admitted next; nullptr when the running list is full, nobody waits,
  // or this plan has preempted (admitting now would take from whom room was made).
  Request* next_waiting();
  // Admits a request of the queue, while next_waiting() is not nullptr, with a first chunk of
  // `num_tokens`. False when the blocks of its whole prompt are not free beside what begun prompts
  // still need; it stays where it is. O(queue) when it is not the head.
  bool admit(Request& request, std::int32_t num_tokens);

  const StepPlan& current_plan() const { return *plan_; }
  TimeNs now() const { return plan_->planned_at; }
  const SchedulerConfig& config() const { return config_; }
  RequestTable& requests() { return requests_; }
  WaitingQueue& queue() { return waiting_; }
  std::vector<Request*>& running_list() { return running_; }  // a policy may change its order
  KvCacheManager& kv_cache() { return kv_cache_; }
  const KvCacheManager& kv_cache() const { return kv_cache_; }
  std::int32_t max_num_seqs() const { return max_num_seqs_; }
  std::int32_t max_model_len() const { return max_model_len_; }
  bool nothing_runs() const { return running_.empty(); }

 private:
  void retire();
  bool can_make_room(const Request& request, std::int32_t num_positions) const;
  bool make_room(Request& request, std::int32_t num_positions);
  void unschedule(Request& request);
  void join(Request& request, bool by_priority);
  void build_passes();
  void leave_running(Request& request);
  void end(Request& request, RequestState state, EndReason reason);
  void close(Request& request, RequestState state, EndReason reason);
  void commit_tokens(StepPlan& plan, const StepResult& result, CommitReport& report);
  template <class TakeToken, class DropToken>
  void commit_chunks(StepPlan& plan, const TakeToken& take_token, const DropToken& drop_token,
                     CommitReport& report);
  void fail(const StepPlan& plan, CommitReport& report);
  void finish(Request& request, EndReason reason, CommitReport& report);

  SchedulerConfig config_;
  std::int32_t max_num_seqs_;
  std::int32_t max_model_len_;
  StepShape step_shape_;
  KvCacheManager& kv_cache_;
  RequestTable& requests_;
  WaitingQueue waiting_;
  // In service order: admission order, or under `priority` by priority and then submission. The
  // tail is the first to be preempted. Ended requests are dropped at the next plan.
  std::vector<Request*> running_;
  std::vector<Request*> prefilling_;        // those of them in state Prefill, in order of admission
  std::vector<Request*> ordered_prefills_;  // scratch of unfinished_prefills()
  std::vector<ScheduledChunk> decodes_;     // scratch of plan_decodes()
  std::size_t num_ended_running_ = 0;
  StepPlan* plan_ = nullptr;  // while planning
  bool has_evicted_ = false;  // this plan sent somebody back to the queue
};

}  // namespace metronome
