// SPDX-License-Identifier: Apache-2.0
// vLLM V1, decision for decision. It has no prefill and decode phases: each request's computed
// tokens catch up with its tokens. Running requests come first, in admission order, then waiting
// ones. So decodes come first: an unfinished prompt took the rest of the budget at its admission
// and is last in the list.
#include "core/engine/policy.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/engine/policies/held_prompts.h"
#include "engines/vllm/product.h"
#include "engines/vllm/rules.h"
#include "engines/vllm/settings.h"
#include "engines/vllm/state_split.h"

namespace metronome {
namespace {

// A draft model computes one token more than the target model, so each request of a step costs one
// more token of the budget (vllm/config/speculative.py, max_num_new_slots_for_drafting).
std::int32_t draft_slots(const DraftConfig& drafts) {
  const bool has_model = drafts.method == DraftMethod::DraftModel;
  return drafts.num_tokens > 0 && has_model ? 1 : 0;
}

// Drafters of these methods read the prompt one token ahead.
bool reads_ahead(const DraftConfig& drafts) {
  using Method = DraftMethod;
  return drafts.num_tokens > 0 && (drafts.method == Method::Eagle || drafts.method == Method::Mtp);
}

// Speculative decoding. Sources: vllm/config/vllm.py (num_lookahead_tokens) and
// vllm/v1/core/kv_cache_utils.py (num_hash_lookahead_tokens).
void adjust_for_drafts(const DraftConfig& drafts, std::int32_t max_model_len,
                       KvCacheLayout& layout) {
  using Method = DraftMethod;
  if (drafts.num_tokens == 0) return;
  layout.verifies_drafts = true;
  layout.max_positions = max_model_len;
  if (drafts.method != Method::Ngram) {
    layout.num_lookahead_tokens = drafts.num_tokens;
  }
  if (reads_ahead(drafts)) layout.num_hash_lookahead_tokens = 1;
}

class VllmPolicy final : public Policy {
 public:
  explicit VllmPolicy(const PolicyContext& context)
      : config_(context.config.settings<VllmConfig>()),
        drafts_by_batch_size_(context.config.drafts.by_batch_size),
        rules_(vllm_rules(config_)),
        budget_(token_budget(context.config)),
        num_drafts_(context.config.drafts.num_tokens),
        num_draft_slots_(draft_slots(context.config.drafts)),
        max_active_(static_cast<std::size_t>(config_.max_num_active_seqs)),
        // With separate passes, the decodes are computed before a prompt of the same step that may
        // fill the prefix of an admitted request.
        pads_admissions_(num_drafts_ > 0 && drafts_by_batch_size_.empty() &&
                         context.step_shape != StepShape::Separate),
        prefill_interval_(config_.prefill_schedule_interval),
        last_prefill_step_(-1 - prefill_interval_),
        num_read_ahead_(reads_ahead(context.config.drafts) ? 1 : 0),
        chunks_(config_.enable_chunked_prefill),
        reserves_full_prompt_(config_.scheduler_reserve_full_isl),
        max_num_seqs_(context.max_num_seqs),
        by_priority_(config_.scheduling_policy == VllmConfig::Policy::Priority) {
    if (const StateGroups* states = context.kv_cache.states(); states && states->caches_states()) {
      const std::int32_t limit = config_.long_prefill_token_threshold;
      state_split_ = StateSplit{.layout = states->options().layout,
                                .block_size = states->options().block_size,
                                .num_hash_lookahead = states->options().num_hash_lookahead,
                                .max_chunk_tokens = limit > 0 ? std::min(limit, budget_) : budget_};
    }
  }

  std::string remark() const override {
    return held_prompts_.remark("max_num_batched_tokens", "enable_chunked_prefill", max_num_seqs_);
  }

 private:
  std::int64_t max_tokens_per_step() const override { return budget_; }

  QueueOrder order(const SchedulerConfig& config) const override {
    return by_priority_ ? QueueOrder::Priority : config.order;
  }

  void on_commit(Books&, const StepPlan&, const StepResult& result, const CommitReport&) override {
    for (const std::int32_t num_proposed : result.num_proposed) {
      METRONOME_CHECK(num_proposed <= num_drafts_,
                      "no more drafts are proposed than the settings say");
    }
  }
  void on_end(Books&, const Request& request, EndReason) override {
    if (!held_up_.empty()) held_up_.erase(request.id);
  }

  void fill(Books& books) override {
    books_ = &books;
    if (!chunks_) held_prompts_.begin_plan(books_->plan().step_index);
    left_ = budget_ - num_draft_slots_;
    threshold_ = threshold();
    has_prefill_ = false;
    holds_prefills_ = must_hold_prefills();
    continue_running();
    if (books_->plan().preempted.empty()) {
      admit_waiting();
      if (!holds_prefills_) has_backlog_ = books_->waiting().size() > held_up_.size();
    }
    if (has_prefill_) last_prefill_step_ = books_->plan().step_index;
    if (num_drafts_ > 0) expect_drafts();
  }

  // The drafts of each decode that follows a step with so many requests
  // (build_dynamic_sd_schedule_lookup in vllm/v1/spec_decode/dynamic/utils.py).
  std::int32_t drafts_after(std::size_t num_requests) const {
    const std::vector<std::int32_t>& by_size = drafts_by_batch_size_;
    if (by_size.empty() || num_requests == 0) return num_drafts_;
    return std::min(num_drafts_, by_size[std::min(num_requests, by_size.size() - 1)]);
  }

  // A step that samples proposes drafts for the request's next one. A result may correct their
  // number.
  void expect_drafts() {
    const std::int32_t num_drafts = drafts_after(books_->plan().chunks.size());
    bool are_usable = false;
    for (const ScheduledChunk& chunk : books_->plan().chunks) {
      Request& request = books_->requests()[chunk.request];
      request.num_draft_tokens = chunk.samples_token ? num_drafts : 0;
      are_usable = are_usable || can_use_drafts(request, chunk);
    }
    books_->propose_drafts(are_usable ? num_drafts : 0);
  }

  // vLLM does not draft for a chunk in the middle of a prompt, nor for a request whose last token
  // this step samples. A step in flight counts as one token.
  static bool can_use_drafts(const Request& request, const ScheduledChunk& chunk) {
    if (!chunk.samples_token) return false;
    const std::int32_t num_in_flight = request.num_computed_tokens() - request.num_cached_tokens();
    const bool has_earlier = chunk.kind == ChunkKind::Decode && num_in_flight > chunk.num_tokens;
    return request.num_output_tokens() + 1 + (has_earlier ? 1 : 0) < request.max_output_tokens;
  }

  // The most tokens of one request in this step; 0 = no limit.
  std::int32_t threshold() const {
    const auto num_requests =
        static_cast<std::int32_t>(books_->running().size() + books_->waiting().size());
    if (config_.long_prefill_token_threshold == 0) return 0;
    if (rules_.lone_request_ignores_threshold && num_requests <= 1) return 0;
    if (!config_.long_prefill_token_threshold_adaptive) return config_.long_prefill_token_threshold;
    return std::max(config_.long_prefill_token_threshold, budget_ / std::max(num_requests, 1));
  }

  // Whether this step computes no prompt chunk because of prefill_schedule_interval. It may admit a
  // request with one token to compute.
  bool must_hold_prefills() const {
    return prefill_interval_ > 1 && !has_backlog_ &&
           books_->plan().step_index - last_prefill_step_ < prefill_interval_ &&
           std::any_of(
               books_->running().begin(), books_->running().end(),
               [](const Request* request) { return request->state == RequestState::Decode; });
  }

  std::int32_t wanted_tokens(std::int32_t num_tokens) const {
    return threshold_ > 0 ? std::min(num_tokens, threshold_) : num_tokens;
  }

  // The tokens of a decode: one, and its drafts. 0 when its last token is in flight.
  std::int32_t decode_tokens(const Request& request) const {
    if (num_drafts_ == 0) return request.is_decodable() ? 1 : 0;
    // All drafts in flight may be rejected; one token is then left to come.
    const bool is_in_flight = request.num_computed_tokens() != request.num_cached_tokens();
    if (is_in_flight && request.num_tokens() >= request.num_final_tokens) return 0;
    const std::int32_t num_tokens = std::min(wanted_tokens(1 + request.num_draft_tokens), left_);
    return std::min(num_tokens, books_->max_model_len() - 1 - request.num_computed_tokens());
  }

  void continue_running() {
    next_ = books_->plan_run();
    left_ -= books_->plan().num_decode_tokens;
    for (; next_ < books_->running().size() && left_ > 0; ++next_) {
      Request& request = *books_->running()[next_];
      const bool is_prefill = request.state == RequestState::Prefill;
      std::int32_t num_tokens = 0;
      if (!is_prefill) {
        num_tokens = decode_tokens(request);
      } else if (!holds_prefills_) {
        num_tokens = std::min(wanted_tokens(request.num_uncomputed_tokens()), left_);
        num_tokens = split(request, request.num_computed_tokens(), num_tokens,
                           books_->kv_cache().shared_prefix_end_of(request));
        num_tokens = books_->fit_to_encoder(request, request.num_computed_tokens(), num_tokens,
                                            num_read_ahead_);
      }
      if (num_tokens == 0) continue;
      if (!make_room(request, request.num_computed_tokens() + num_tokens)) {
        if (!by_priority_ || !rules_.continues_after_own_preemption) return;
        --next_;  // another request stands here now
        continue;
      }
      books_->add_chunk(request, num_tokens);
      has_prefill_ = has_prefill_ || is_prefill;
      left_ -= num_tokens + num_draft_slots_;
    }
  }

  // Preempts until `request` has room: the last running request, or under `priority` the last by
  // priority. That may be `request` itself; then returns false.
  bool make_room(Request& request, std::int32_t num_positions) {
    while (!books_->kv_cache().grow(request, num_positions)) {
      Request& victim = by_priority_ ? last_in_priority() : *books_->running().back();
      // Only under the priority policy can the victim already be in this plan.
      const std::int32_t num_planned = by_priority_ ? books_->num_planned_tokens(victim) : 0;
      if (num_planned > 0) left_ += num_planned + num_draft_slots_;
      if (rules_.moves_back_by_position ? stands_before_next(victim) : num_planned > 0) --next_;
      books_->preempt(victim);
      if (&victim == &request) return false;
    }
    return true;
  }

  bool stands_before_next(const Request& request) const {
    const auto end = books_->running().begin() + static_cast<std::ptrdiff_t>(next_);
    return by_priority_ && std::find(books_->running().begin(), end, &request) != end;
  }

  Request& last_in_priority() const {
    return **std::max_element(
        books_->running().begin(), books_->running().end(), [](const Request* a, const Request* b) {
          if (a->priority != b->priority) return a->priority < b->priority;
          // vLLM's arrival times hardly ever tie. Here they can, and without a tie-break two
          // requests could preempt each other forever.
          return a->arrival != b->arrival ? a->arrival < b->arrival : a->id < b->id;
        });
  }

  // A request that the encoder holds up lets those behind it pass.
  void admit_waiting() {
    put_aside_.clear();
    admit_fitting();
    for (std::size_t i = put_aside_.size(); i-- > 0;) books_->waiting().push_front(*put_aside_[i]);
  }

  void admit_fitting() {
    const bool may_pad = !has_prefill_;
    const bool has_running_chunk = !books_->plan().empty();
    while (left_ > 0) {
      if (max_active_ > 0 && books_->running().size() >= max_active_) return;
      Request* request = books_->next_waiting();
      if (request == nullptr) return;
      const PrefixHit& hit = books_->kv_cache().find_prefix(*request);
      const bool is_prefill = hit.num_tokens < request->num_tokens() - 1;
      if (is_prefill && holds_prefills_) return;
      FirstChunk chunk =
          first_chunk(*request, hit, may_pad && (has_running_chunk || hit.num_tokens > 0));
      if (chunk.num_tokens == 0) {
        const std::int32_t wanted = wanted_tokens(request->num_tokens() - hit.num_tokens);
        if (!chunks_ && !has_prefill_ && wanted > left_) held_prompts_.note(wanted);
        return;
      }
      chunk.num_tokens =
          books_->fit_to_encoder(*request, hit.num_tokens, chunk.num_tokens, num_read_ahead_);
      if (chunk.num_tokens == 0) {
        books_->waiting().pop();
        put_aside_.push_back(request);
        held_up_.insert(request->id);
        continue;
      }
      if (!has_room(*request, hit, chunk.num_tokens)) return books_->release_encoded(*request);
      // vLLM has asked for room and fails now. Here the request takes one token.
      if (chunk.is_cut) chunk.num_tokens = 1;
      if (!held_up_.empty()) held_up_.erase(request->id);
      books_->start(*request, hit, hit.num_tokens + chunk.num_tokens);
      if (chunk.is_padded) books_->begin_decode(*request);
      books_->add_chunk(*request, chunk.num_tokens);
      has_prefill_ = has_prefill_ || is_prefill;
      left_ -= chunk.num_tokens + num_draft_slots_;
    }
  }

  struct FirstChunk {
    std::int32_t num_tokens = 0;  // 0: nothing in this step
    bool is_padded = false;       // with drafts that the model rejects
    bool is_cut = false;          // the threshold cuts the padding
  };

  // The first chunk of a waiting request. With one token to compute it may be padded with drafts,
  // so that all requests of a step of decodes have equally many tokens, as full CUDA graphs need.
  FirstChunk first_chunk(const Request& request, const PrefixHit& hit, bool may_pad) const {
    std::int32_t num_tokens = wanted_tokens(request.num_tokens() - hit.num_tokens);
    if (!chunks_ && num_tokens > left_) return {};
    num_tokens = std::min(num_tokens, left_);
    const std::int32_t num_padded = 1 + num_drafts_;
    const bool is_padded = pads_admissions_ && may_pad &&
                           hit.num_tokens == request.num_tokens() - 1 &&
                           request.num_tokens() + num_padded <= books_->max_model_len();
    if (is_padded && num_padded > left_) return {};
    const bool is_cut = is_padded && wanted_tokens(num_padded) != num_padded;
    if (is_cut && !state_split_) return {wanted_tokens(num_padded), false, true};
    if (!is_padded || is_cut) {
      return {split(request, hit.num_tokens, num_tokens, hit.shared_prefix_end)};
    }
    num_tokens = split(request, hit.num_tokens, num_padded, hit.shared_prefix_end);
    if (num_tokens == num_padded) return {num_padded, true};
    return {std::min(num_tokens, 1)};
  }

  // The tokens of a chunk that wants `num_tokens`, as the model's states allow.
  std::int32_t split(const Request& request, std::int32_t begin, std::int32_t num_tokens,
                     std::int32_t shared_prefix_end) const {
    if (!state_split_) return num_tokens;
    return state_split_->tokens_of_chunk(begin, num_tokens, request.num_prompt_tokens,
                                         request.num_tokens(), shared_prefix_end);
  }

  bool has_room(const Request& request, const PrefixHit& hit, std::int32_t num_tokens) const {
    // The watermark protects running requests, so it does not apply when none runs.
    const std::int64_t num_kept =
        books_->nothing_runs() ? 0 : books_->kv_cache().watermark_blocks();
    const std::int64_t num_free = books_->kv_cache().num_free_blocks() - num_kept;
    if (reserves_full_prompt_ && books_->kv_cache().num_blocks_to_take(
                                     request, hit, request.num_tokens(), true) > num_free) {
      return false;
    }
    return books_->kv_cache().num_blocks_to_take(request, hit, hit.num_tokens + num_tokens) <=
           num_free;
  }

  Books* books_ = nullptr;  // while it fills a plan
  const VllmConfig config_;
  const std::vector<std::int32_t> drafts_by_batch_size_;
  const VllmRules rules_;
  std::int32_t budget_;
  std::int32_t num_drafts_;       // per decode; 0 without speculative decoding
  std::int32_t num_draft_slots_;  // of the budget, for each request of a step
  std::size_t max_active_;        // 0 = max_num_seqs
  bool pads_admissions_;          // with drafts that are rejected
  std::int64_t prefill_interval_;
  std::int64_t last_prefill_step_;
  std::set<RequestId> held_up_;            // waiting requests that the encoder has held up
  bool has_backlog_ = false;               // requests had to wait when prompts were last allowed
  std::optional<StateSplit> state_split_;  // of models whose states are cached
  std::int32_t num_read_ahead_;            // tokens behind a chunk that the drafter reads
  bool chunks_;
  bool reserves_full_prompt_;
  std::int32_t max_num_seqs_;
  bool by_priority_;
  HeldPrompts held_prompts_;
  // The state of the plan that fill() makes.
  std::int32_t left_ = 0;  // tokens that one more request may compute
  std::int32_t threshold_ = 0;
  bool holds_prefills_ = false;
  bool has_prefill_ = false;         // it computed a prompt chunk
  std::size_t next_ = 0;             // index into the running list
  std::vector<Request*> put_aside_;  // from the queue, which has them back after the plan
};

}  // namespace

std::unique_ptr<Policy> make_vllm(const PolicyContext& context) {
  return std::make_unique<VllmPolicy>(context);
}

void adjust_vllm_cache(const SchedulerConfig& config, std::int32_t max_model_len,
                       KvCacheLayout& layout) {
  const VllmRules rules = vllm_rules(config.settings<VllmConfig>());
  layout.reuses_unhashed_first = layout.enable_prefix_caching ? rules.reuses_unhashed_first
                                                              : rules.reuses_first_without_caching;
  adjust_for_drafts(config.drafts, max_model_len, layout);
  const bool has_states = layout.states.num_groups > 0;
  if (has_states) {
    layout.states.caches_states = layout.enable_prefix_caching;
    layout.states.num_drafts = config.drafts.num_tokens;
    layout.states.export_unit = layout.states.hash_unit;
    // Windows are not cached in parts of blocks (partial_hash_hits_enabled in
    // vllm/v1/core/kv_cache_utils.py). Chunks begin and export as if they were.
    if (layout.windows.num_tokens > 0) layout.states.hash_unit = layout.block_size;
  }
  if (layout.windows.num_tokens == 0 && !has_states) return;
  layout.windows.reuses_unhashed_first = rules.reuses_unhashed_windows_first;
  layout.windows.retains_shared_prefixes = rules.retains_shared_prefixes;
  layout.windows.caches_one_token_windows = rules.caches_one_token_windows;
  layout.windows.releases_computed = rules.releases_computed_windows;
  if (!layout.retention_interval) {
    layout.retention_interval = rules.retains_boundaries_only ? 0 : kDenseRetention;
  }
  if (layout.windows.num_tokens == 0 || !rules.caps_window_admission) return;
  // One request holds the window, the tokens that steps compute beyond it, and one more block if
  // these do not begin at a block boundary.
  const bool has_two_steps = layout.plans_ahead && rules.caps_windows_by_steps_in_flight;
  const std::int64_t num_in_flight = std::int64_t{token_budget(config)} * (has_two_steps ? 2 : 1);
  const std::int64_t num_tokens =
      std::min<std::int64_t>(layout.windows.num_tokens - 1 + num_in_flight, max_model_len);
  layout.windows.max_blocks = ceil_div(num_tokens, layout.block_size) + 1;
}

}  // namespace metronome
