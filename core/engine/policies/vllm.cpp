// vLLM V1, decision for decision. It has no prefill and decode phases: each request's computed
// tokens catch up with its tokens. Running requests come first, in admission order, then waiting
// ones. So decodes come first: an unfinished prompt took the rest of the budget at its admission
// and is last in the list.
#include <algorithm>

#include "core/engine/policies/policies.h"
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
        budget_(token_budget(context.config)),
        threshold_(context.config.vllm.long_prefill_token_threshold),
        chunks_(context.config.vllm.enable_chunked_prefill),
        reserves_full_prompt_(context.config.vllm.scheduler_reserve_full_isl),
        by_priority_(context.config.order == QueueOrder::Priority) {}

 private:
  std::int64_t max_tokens_per_step() const override { return budget_; }

  void fill_plan() override {
    left_ = budget_;
    continue_running();
    admit_waiting();  // admits none if this plan has preempted
  }

  std::int32_t wanted_tokens(std::int32_t num_tokens) const {
    return threshold_ > 0 ? std::min(num_tokens, threshold_) : num_tokens;
  }

  void continue_running() {
    for (next_ = 0; next_ < running().size() && left_ > 0; ++next_) {
      Request& request = *running()[next_];
      std::int32_t num_tokens = 1;
      if (request.state == RequestState::Prefill) {
        num_tokens = std::min(wanted_tokens(request.num_uncomputed_tokens()), left_);
      } else if (!request.is_decodable()) {
        continue;  // its last token is in flight
      }
      if (!make_room(request, request.num_computed_tokens + num_tokens)) return;
      add_chunk(request, num_tokens);
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
      if (const std::int32_t num_planned = num_planned_tokens(victim); num_planned > 0) {
        left_ += num_planned;
        --next_;
      }
      preempt(victim);
      if (&victim == &request) return false;
    }
    return true;
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
      Request* request = next_waiting();
      if (request == nullptr) return;
      const PrefixHit& hit = kv_cache().find_prefix(*request);
      std::int32_t num_tokens = wanted_tokens(request->num_tokens() - hit.num_tokens);
      if (!chunks_ && num_tokens > left_) return;
      num_tokens = std::min(num_tokens, left_);
      if (!has_room(*request, hit, num_tokens)) return;
      start(*request, hit, hit.num_tokens + num_tokens);
      add_chunk(*request, num_tokens);
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

  std::int32_t budget_;
  std::int32_t threshold_;
  bool chunks_;
  bool reserves_full_prompt_;
  bool by_priority_;
  std::int32_t left_ = 0;  // rest of this plan's budget
  std::size_t next_ = 0;   // index into the running list
};

}  // namespace

std::unique_ptr<Scheduler> make_vllm(const SchedulerContext& context) {
  SchedulerConfig config = context.config;
  return std::make_unique<VllmScheduler>(with_vllm_order(context, config));
}

void adjust_vllm_cache(const SchedulerConfig& config, std::int32_t max_model_len,
                       KvCacheLayout& layout) {
  layout.reuses_unhashed_first = config.vllm.evict_unhashed_first;
  if (layout.sliding_window == 0) return;
  // One request holds the window, the tokens a step computes beyond it, and one more block if these
  // do not begin at a block boundary.
  const std::int64_t num_tokens = std::min<std::int64_t>(
      std::int64_t{layout.sliding_window} - 1 + token_budget(config), max_model_len);
  layout.max_window_blocks = ceil_div(num_tokens, layout.block_size) + 1;
}

}  // namespace metronome
