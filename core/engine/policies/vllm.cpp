// vLLM V1, decision for decision. It has no prefill and decode phases: each request's computed
// tokens catch up with its tokens. Running requests come first, in admission order, then waiting
// ones. So decodes come first: an unfinished prompt took the rest of the budget at its admission
// and is last in the list.
#include <algorithm>

#include "core/engine/policies/policies.h"
#include "core/engine/policies/vllm_rules.h"
#include "core/engine/scheduler.h"

namespace metronome {
namespace {

SchedulerContext with_vllm_order(SchedulerContext context, SchedulerConfig& config) {
  if (config.vllm.scheduling_policy == VllmConfig::Policy::Priority) {
    config.order = QueueOrder::Priority;
  }
  return {.config = config,
          .max_num_seqs = context.max_num_seqs,
          .max_model_len = context.max_model_len,
          .step_shape = context.step_shape,
          .kv_cache = context.kv_cache,
          .requests = context.requests,
          .predictor = context.predictor};
}

class VllmScheduler final : public Scheduler {
 public:
  explicit VllmScheduler(const SchedulerContext& context)
      : Scheduler(context),
        rules_(vllm_rules(context.config.vllm)),
        budget_(token_budget(context.config)),
        max_active_(static_cast<std::size_t>(context.config.vllm.max_num_active_seqs)),
        prefill_interval_(context.config.vllm.prefill_schedule_interval),
        last_prefill_step_(-prefill_interval_),
        chunks_(context.config.vllm.enable_chunked_prefill),
        reserves_full_prompt_(context.config.vllm.scheduler_reserve_full_isl),
        by_priority_(context.config.order == QueueOrder::Priority) {}

 private:
  std::int64_t max_tokens_per_step() const override { return budget_; }

  void fill_plan() override {
    left_ = budget_;
    threshold_ = threshold();
    has_prefill_ = false;
    holds_prefills_ = must_hold_prefills();
    continue_running();
    if (current_plan().preempted.empty()) {
      admit_waiting();
      if (!holds_prefills_) has_backlog_ = num_waiting() > 0;
    }
    if (!current_plan().empty()) ++num_executed_steps_;
    if (has_prefill_) last_prefill_step_ = num_executed_steps_;
  }

  // The most tokens of one request in this step; 0 = no limit.
  std::int32_t threshold() const {
    const VllmConfig& vllm = config().vllm;
    const auto num_requests = static_cast<std::int32_t>(running().size() + num_waiting());
    if (vllm.long_prefill_token_threshold == 0) return 0;
    if (rules_.lone_request_ignores_threshold && num_requests <= 1) return 0;
    if (!vllm.long_prefill_token_threshold_adaptive) return vllm.long_prefill_token_threshold;
    return std::max(vllm.long_prefill_token_threshold, budget_ / std::max(num_requests, 1));
  }

  // Whether this step computes no prompt chunk because of prefill_schedule_interval. It may admit a
  // request with one token to compute.
  bool must_hold_prefills() const {
    return prefill_interval_ > 1 && !has_backlog_ &&
           num_executed_steps_ + 1 - last_prefill_step_ < prefill_interval_ &&
           std::any_of(running().begin(), running().end(), [](const Request* request) {
             return request->state == RequestState::Decode;
           });
  }

  std::int32_t wanted_tokens(std::int32_t num_tokens) const {
    return threshold_ > 0 ? std::min(num_tokens, threshold_) : num_tokens;
  }

  void continue_running() {
    for (next_ = 0; next_ < running().size() && left_ > 0; ++next_) {
      Request& request = *running()[next_];
      std::int32_t num_tokens = 1;
      if (request.state == RequestState::Prefill) {
        if (holds_prefills_) continue;
        num_tokens = std::min(wanted_tokens(request.num_uncomputed_tokens()), left_);
      } else if (!request.is_decodable()) {
        continue;  // its last token is in flight
      }
      const bool is_prefill = request.state == RequestState::Prefill;
      if (!make_room(request, request.num_computed_tokens + num_tokens)) {
        if (!by_priority_ || !rules_.continues_after_own_preemption) return;
        --next_;  // another request stands here now
        continue;
      }
      add_chunk(request, num_tokens);
      has_prefill_ = has_prefill_ || is_prefill;
      left_ -= num_tokens;
    }
  }

  // Hides Scheduler::make_room, which preempts the last running requests and never `request`. This
  // one may preempt `request` itself, and then returns false. Under `priority` it chooses the
  // victim by priority.
  bool make_room(Request& request, std::int32_t num_positions) {
    while (!kv_cache().grow(request, num_positions)) {
      Request& victim = by_priority_ ? last_in_priority() : *running().back();
      // Only under the priority policy can the victim already be in this plan.
      const std::int32_t num_planned = by_priority_ ? num_planned_tokens(victim) : 0;
      left_ += num_planned;
      if (rules_.moves_back_by_position ? stands_before_next(victim) : num_planned > 0) --next_;
      preempt(victim);
      if (&victim == &request) return false;
    }
    return true;
  }

  bool stands_before_next(const Request& request) const {
    const auto end = running().begin() + static_cast<std::ptrdiff_t>(next_);
    return by_priority_ && std::find(running().begin(), end, &request) != end;
  }

  Request& last_in_priority() const {
    return **std::max_element(
        running().begin(), running().end(), [](const Request* a, const Request* b) {
          if (a->priority != b->priority) return a->priority < b->priority;
          // vLLM's arrival times hardly ever tie. Here they can, and without a tie-break two
          // requests could preempt each other forever.
          return a->arrival != b->arrival ? a->arrival < b->arrival : a->id < b->id;
        });
  }

  void admit_waiting() {
    while (left_ > 0) {
      if (max_active_ > 0 && running().size() >= max_active_) return;
      Request* request = next_waiting();
      if (request == nullptr) return;
      const PrefixHit& hit = kv_cache().find_prefix(*request);
      const bool is_prefill = hit.num_tokens < request->num_tokens() - 1;
      if (is_prefill && holds_prefills_) return;
      std::int32_t num_tokens = wanted_tokens(request->num_tokens() - hit.num_tokens);
      if (!chunks_ && num_tokens > left_) return;
      num_tokens = std::min(num_tokens, left_);
      if (!has_room(*request, hit, num_tokens)) return;
      start(*request, hit, hit.num_tokens + num_tokens);
      add_chunk(*request, num_tokens);
      has_prefill_ = has_prefill_ || is_prefill;
      left_ -= num_tokens;
    }
  }

  bool has_room(const Request& request, const PrefixHit& hit, std::int32_t num_tokens) const {
    // The watermark protects running requests, so it does not apply when none runs.
    const std::int64_t num_kept = nothing_runs() ? 0 : kv_cache().watermark_blocks();
    const std::int64_t num_free = kv_cache().num_free_blocks() - num_kept;
    if (reserves_full_prompt_ &&
        kv_cache().num_blocks_to_take(hit, request.num_tokens(), true) > num_free) {
      return false;
    }
    return kv_cache().num_blocks_to_take(hit, hit.num_tokens + num_tokens) <= num_free;
  }

  const VllmRules rules_;
  std::int32_t budget_;
  std::size_t max_active_;  // 0 = max_num_seqs
  std::int64_t prefill_interval_;
  std::int64_t last_prefill_step_;       // by num_executed_steps_
  std::int64_t num_executed_steps_ = 0;  // plans that were not empty
  bool has_backlog_ = false;             // requests had to wait when prompts were last allowed
  bool chunks_;
  bool reserves_full_prompt_;
  bool by_priority_;
  // Of this plan.
  std::int32_t left_ = 0;  // rest of its budget
  std::int32_t threshold_ = 0;
  bool holds_prefills_ = false;
  bool has_prefill_ = false;  // it computed a prompt chunk
  std::size_t next_ = 0;      // index into the running list
};

}  // namespace

std::unique_ptr<Scheduler> make_vllm(const SchedulerContext& context) {
  SchedulerConfig config = context.config;
  return std::make_unique<VllmScheduler>(with_vllm_order(context, config));
}

void adjust_vllm_cache(const SchedulerConfig& config, std::int32_t max_model_len,
                       KvCacheLayout& layout) {
  const VllmRules rules = vllm_rules(config.vllm);
  layout.reuses_unhashed_first = layout.enable_prefix_caching ? rules.reuses_unhashed_first
                                                              : rules.reuses_first_without_caching;
  if (layout.sliding_window == 0) return;
  layout.reuses_unhashed_windows_first = rules.reuses_unhashed_windows_first;
  layout.retains_shared_prefixes = rules.retains_shared_prefixes;
  layout.caches_one_token_windows = rules.caches_one_token_windows;
  layout.releases_computed_windows = rules.releases_computed_windows;
  if (!layout.retention_interval) {
    layout.retention_interval = rules.retains_boundaries_only ? 0 : kDenseRetention;
  }
  if (!rules.caps_window_admission) return;
  // One request holds the window, the tokens that steps compute beyond it, and one more block if
  // these do not begin at a block boundary.
  const bool has_two_steps = layout.plans_ahead && rules.caps_windows_by_steps_in_flight;
  const std::int64_t num_in_flight = std::int64_t{token_budget(config)} * (has_two_steps ? 2 : 1);
  const std::int64_t num_tokens =
      std::min<std::int64_t>(layout.sliding_window - 1 + num_in_flight, max_model_len);
  layout.max_window_blocks = ceil_div(num_tokens, layout.block_size) + 1;
}

}  // namespace metronome
