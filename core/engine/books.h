// SPDX-License-Identifier: Apache-2.0
// The state of an engine's requests: the queue, the running list, their KV blocks, and the step
// under construction. A policy (policy.h) reads the books and calls their operations. These keep
// everything consistent and decide nothing.
//
// Most policies decode first and need five operations: plan_decodes(), unfinished_prefills() with
// plan_prefill(), next_waiting() with admit(). A policy that reproduces an engine's own rules calls
// what these are made of: start(), add_chunk(), preempt(), refuse(), give_up().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/engine/decode_set.h"
#include "core/engine/encoder_cache.h"
#include "core/engine/engine_choices.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/request.h"
#include "core/engine/scheduler_config.h"
#include "core/engine/step_plan.h"
#include "core/engine/waiting_queue.h"

namespace metronome {

class Policy;
struct PolicyContext;

struct BooksSetup {
  bool plans_runs = false;  // see Executor::takes_runs()
  KvCacheManager& kv_cache;
  RequestTable& requests;
  EncoderSetup encoder = {};  // of models with images
};

class Books {
 public:
  // ---- Reading ----

  TimeNs now() const { return plan_->planned_at; }
  // The step under construction.
  const StepPlan& plan() const { return *plan_; }
  // Tokens of the chunk of `request` in it; 0 without a chunk.
  std::int32_t num_planned_tokens(const Request& request) const;

  // In service order: the last one is preempted first. Includes requests that ended since the last
  // plan.
  const std::vector<Request*>& running() const { return running_; }
  std::size_t num_running() const { return running_.size() - ended_running_.size(); }
  bool nothing_runs() const { return running_.empty(); }
  // In a plan: running requests whose last token is in flight; not with drafts.
  const std::vector<const Request*>& finishing() const { return run_.finishing(); }
  std::int32_t num_decodable() const;
  // Running requests with uncomputed prompt tokens, in queue order. Valid until the next call. An
  // entry that was preempted since is no longer in state Prefill.
  const std::vector<Request*>& unfinished_prefills();
  std::int32_t num_unfinished_prefills() const {
    return static_cast<std::int32_t>(prefilling_.size());
  }
  // Tokens that a request has yet to compute; of a waiting one, without those of its cached prefix.
  std::int32_t num_uncomputed_tokens(const Request& request) {
    const std::int32_t num_tokens = request.num_uncomputed_tokens();
    if (request.state != RequestState::Waiting) return num_tokens;
    return num_tokens - kv_cache_.find_prefix(request).num_tokens;
  }
  WaitingQueue& waiting() { return waiting_; }  // a policy may change its order
  const WaitingQueue& waiting() const { return waiting_; }
  RequestTable& requests() { return requests_; }
  const RequestTable& requests() const { return requests_; }
  KvCacheManager& kv_cache() { return kv_cache_; }
  const KvCacheManager& kv_cache() const { return kv_cache_; }
  std::int32_t max_num_seqs() const { return max_num_seqs_; }
  std::int32_t max_model_len() const { return max_model_len_; }

  // ---- Decodes first, then prompts ----

  // Plans one token for every running request with a computed prompt, in service order. Preempts
  // when the pool runs out.
  void plan_decodes();
  // Plans the next `num_tokens` of a running prompt. Returns false when preempting all requests
  // after it would not give it room. Then it preempts none; the request keeps its blocks and waits
  // a step.
  bool plan_prefill(Request& request, std::int32_t num_tokens);
  // The next request to admit. nullptr when the running list is full, the queue is empty, or this
  // plan has preempted (admission would take the blocks freed for another request).
  Request* next_waiting();
  // Admits a queued request with a first chunk of `num_tokens` behind its cached prefix, which
  // counts as computed. Requires that next_waiting() is not nullptr. Returns false, and leaves it
  // queued, when too few blocks are free for its whole prompt plus the needs of unfinished
  // prefills. With prefix caching, call no plan_prefill() after it in the same plan: a victim's
  // blocks may be in the hit, and not be filled. O(queue) when the request is not the head.
  bool admit(Request& request, std::int32_t num_tokens);

  // ---- Basic operations ----

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

  // ---- The running list ----

  // Plans the run: a decode for each of the first requests of the running list, as far as they have
  // one. A policy that decodes in the order of this list calls it before it plans other decodes.
  // Returns how many requests of the list the policy is done with. If each decode needs a free
  // block, though it may not take it, a run that might lack one ends: the policy then decides for
  // each request.
  std::size_t plan_run(bool needs_free_block = false) {
    return run_.plan(*plan_, needs_free_block);
  }
  std::vector<Request*>& running_list() {  // a policy may change its order
    run_.end(plan_);
    return running_;
  }
  // The decodes that plan_run() would plan, and the blocks that they take.
  std::int32_t num_run_decodes() const { return run_.num_decodes_due(); }
  std::int64_t num_run_blocks() const { return run_.num_blocks_due(); }
  // The running list behind the members of the run, who all decode. A policy may change its order.
  std::span<Request*> running_behind_run() {
    return std::span(running_).subspan(run_.num_covered());
  }
  // The running list from this place on. A policy may change the order of requests behind the
  // members of the run; these keep their places.
  std::span<Request*> running_from(std::size_t place) { return std::span(running_).subspan(place); }
  void sort_running_by_arrival();

  // ---- Images and drafts ----

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
  // The plan's requests that sample get so many drafts (StepPlan::num_next_drafts).
  void propose_drafts(std::int32_t num_drafts) { plan_->num_next_drafts = num_drafts; }

  // ---- What Policy answers unless it has rules of its own ----

  // A request that needs more blocks than the cache has is refused.
  std::string refusal(const RequestSpec& spec) const;
  // A plan that only preempted leaves room for the next one.
  TimeNs wake_time() const { return has_evicted_ ? 0 : kNever; }

 private:
  friend class Scheduler;  // begins and ends plans, and commits them

  Books(const BooksSetup& setup, const PolicyContext& context, Policy& policy);
  void begin(StepPlan& plan, std::int64_t step_index, TimeNs now);
  void finish();
  void retire();
  void plan_encodings(const Request& request, std::int32_t num_tokens);
  bool can_make_room(const Request& request, std::int32_t num_positions) const;
  std::int64_t num_blocks_behind(const Request& request) const;
  bool make_room(Request& request, std::int32_t num_positions);
  void unschedule(Request& request);
  void note_hit(Request& request, const PrefixHit& hit);
  void join(Request& request, bool by_priority);
  void build_passes();
  void leave_running(Request& request);
  void end(Request& request, RequestState state, EndReason reason);
  void close(Request& request, RequestState state, EndReason reason);

  Policy& policy_;
  const std::int32_t max_num_seqs_;
  const std::int32_t max_model_len_;
  const StepShape step_shape_;
  const QueueOrder order_;
  KvCacheManager& kv_cache_;
  RequestTable& requests_;
  WaitingQueue waiting_;
  std::optional<EncoderCache> encoder_;  // empty: a model without images
  // Admission order, or under `priority` by priority and then submission. Ended requests are
  // removed at the next plan.
  std::vector<Request*> running_;
  std::vector<Request*> prefilling_;        // running requests in state Prefill, in admission order
  std::vector<Request*> ordered_prefills_;  // scratch of unfinished_prefills()
  std::vector<ScheduledChunk> decodes_;     // scratch of plan_decodes()
  std::vector<const Request*> ended_running_;  // that running_ still has
  DecodeSet run_;
  StepPlan* plan_ = nullptr;  // while planning
  bool has_evicted_ = false;  // this plan moved a request back to the queue
};

}  // namespace metronome
