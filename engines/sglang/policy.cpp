// SPDX-License-Identifier: Apache-2.0
// SGLang 0.5.23: a step prefills whenever a prompt can be admitted, and decodes otherwise. A prompt
// that does not fit the step is chunked; at most one request has an unfinished prompt. The
// new-token ratio estimates the output to reserve. If the estimate was too low, requests are
// retracted. Cached prefixes are nodes of a radix tree. Names are SGLang's where they exist.
#include "engines/sglang/policy.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <set>
#include <tuple>

#include "core/base/error.h"
#include "core/engine/policy.h"
#include "engines/sglang/lengths.h"
#include "engines/sglang/new_token_ratio.h"
#include "engines/sglang/product.h"
#include "engines/sglang/queue_order.h"
#include "engines/sglang/running_batch.h"
#include "engines/sglang/settings.h"

namespace metronome {
namespace {

enum class Verdict : std::uint8_t { Continue, NoToken, Other };

// The tokens and requests that a prefill step may still take.
struct PrefillBudget {
  double total_offset = 0;      // tokens taken by this step, or expected as output of all requests
  std::int64_t cur_offset = 0;  // tokens taken by this step
  std::int64_t rem_input = 0, rem_chunk = 0;  // of max_prefill_tokens, of chunked_prefill_size
};

// A request's tokens, and those of its cached prefix, when it was last considered for a prefill.
struct Try {
  std::int32_t num_tokens = 0, num_hit = 0;
};

// A request that this prefill step takes.
struct Candidate {
  Request* request;
  PrefixHit hit;
  std::int32_t num_tokens;
  bool is_new;  // otherwise its chunk goes on
};

class SglangPolicy final : public Policy, public SglangDecisions {
 public:
  explicit SglangPolicy(const PolicyContext& context)
      : settings_(context.config.settings<SglangConfig>()),
        page_size_(context.kv_cache.block_size()),
        capacity_(context.kv_cache.num_blocks() * page_size_),
        max_model_len_(context.max_model_len),
        chunks_(settings_.chunked_prefill_size > 0),
        mixes_(chunks_ && settings_.enable_mixed_chunk),  // whole prompts are never mixed
        order_(settings_),
        preempts_(settings_.enable_priority_scheduling && !settings_.disable_priority_preemption),
        new_token_ratio_(settings_) {}

  // SGLang clips the output to what an empty pool can reserve (init_req_max_new_tokens).
  std::string refusal(const Books&, const RequestSpec& spec) const override {
    if (max_new_tokens(spec.num_prompt_tokens, spec.max_output_tokens) > 0) return {};
    return fmt::format("for which sglang finds no room for output in {} tokens of the KV cache",
                       capacity_);
  }

  // Deferred prefills come without a new event.
  TimeNs wake_time(const Books& books) const override {
    return has_deferred_ ? 0 : Policy::wake_time(books);
  }

  SglangState state() const override {
    SglangState state;
    state.chunked = chunked_ == nullptr ? kNoRequest : chunked_->id;
    state.new_token_ratio = new_token_ratio_.value();
    state.batch_is_full = batch_is_full_;
    state.num_evicted_tokens = num_evicted_ * page_size_;
    batch_.visit_from(0, [&](const Request& r) { state.running_batch.push_back(r.id); });
    return state;
  }

 private:
  std::int64_t max_new_tokens(std::int64_t num_prompt_tokens, std::int64_t wanted) const {
    const std::int64_t longest = std::min<std::int64_t>(max_model_len_, capacity_) - 1;
    return std::min({wanted, longest - num_prompt_tokens - 1,
                     capacity_ - ceil_page(num_prompt_tokens) - page_size_ - 1});
  }

  void on_enqueue(Books&, Request& request) override {
    request.limit_output(static_cast<std::int32_t>(
        max_new_tokens(request.num_prompt_tokens, request.limit_tokens())));
    order_.note_entry(request);
  }

  bool may_repeat() const override { return false; }  // the ratio counts steps
  // After this plan, at the back.
  void requeue(Books&, Request& request) override { requeued_.push_back(&request); }
  void flush_requeued() {
    for (Request* request : requeued_) {
      order_.note_entry(*request);
      books_->waiting().push_back(*request);
    }
    requeued_.clear();
  }

  bool takes_token_of_preempted() const override { return false; }  // it is sampled again

  void on_end(Books&, const Request& request, EndReason) override {
    order_.forget(request);
    tries_.erase(request.id);
    batch_.note_end(request);
  }
  void on_commit(Books&, const StepPlan&, const StepResult&, const CommitReport&) override {
    --num_in_flight_;
  }

  // ---- A plan ----

  void fill(Books& books) override {
    books_ = &books;
    if (is_idle_) new_token_ratio_.reset();
    num_evicted_ = 0;
    stash_chunk();
    const auto [has_shrunk, has_begun] = batch_.begin_plan(books);
    if (has_shrunk || has_begun) batch_is_full_ = false;
    if (has_begun) num_noted_tokens_ = num_prefill_tokens_;
    const bool has_prefilled = prefill_is_due() && prefill();
    const bool has_decoded = !has_prefilled && !batch_.empty() && decode();
    batch_.end_plan(has_prefilled);
    if (has_prefilled && settings_.prefill_decode_interval > 0) {
      num_deferred_ = settings_.prefill_decode_interval;
    }
    if (has_prefilled) {
      num_prefill_tokens_ = books_->plan().num_prefill_tokens + books_->plan().num_decode_tokens;
      order_.note_step(num_prefill_tokens_);
    } else if (has_decoded) {
      order_.note_step(num_noted_tokens_);
    }
    const bool has_launched = has_prefilled || has_decoded;
    is_idle_ = !has_launched && num_in_flight_ == 0 && batch_.empty() &&
               books_->waiting().empty() && chunked_ == nullptr;
    num_in_flight_ += has_launched ? 1 : 0;
    refuse_stuck();
  }

  // With nothing in memory, who waits now waits forever.
  void refuse_stuck() {
    if (settings_.waits_forever || has_deferred_) return;
    while (books_->nothing_runs() && books_->plan().empty() && !books_->waiting().empty())
      books_->refuse(*books_->waiting().front());
  }

  // The chunk that was planned last can be hit by others, though it may still be in flight.
  void stash_chunk() {
    if (chunked_ != nullptr && chunked_->has_ended()) chunked_ = nullptr;
    if (chunked_ == nullptr || chunked_->num_computed_tokens() <= num_stashed_) return;
    num_stashed_ = chunked_->num_computed_tokens();
    books_->kv_cache().cache_prefix(*chunked_, num_stashed_);
  }

  bool prefill_is_due() {
    if (num_deferred_ > 0 && batch_.size() < settings_.prefill_decode_interval_min_bs) {
      num_deferred_ = 0;
    }
    has_deferred_ = num_deferred_ > 0;
    if (has_deferred_) --num_deferred_;
    return !has_deferred_;
  }

  // Requests that may be admitted beside those that run. `num_held`: candidates that run already.
  std::int64_t num_allocatable(std::int64_t num_held) const {
    const std::int64_t num_rows =
        books_->max_num_seqs() - static_cast<std::int64_t>(books_->num_running());
    const std::int64_t num_left = books_->max_num_seqs() - batch_.size();
    return std::min(num_left, num_rows + num_held);
  }

  // ---- Prefill ----

  bool prefill() {
    if (preempts_ || batch_.empty()) batch_is_full_ = false;
    if ((batch_is_full_ || books_->waiting().empty()) && chunked_ == nullptr) return false;
    if (num_allocatable(0) <= 0 && chunked_ == nullptr && !preempts_) {
      batch_is_full_ = true;
      return false;
    }
    order_.sort(*books_);
    start_budget();
    candidates_.clear();
    Request* next_chunked = chunked_ == nullptr ? nullptr : continue_chunk();
    books_->waiting().visit_in_order(
        [&](Request& request) { return consider(request, next_chunked); });
    if (!candidates_.empty()) {
      chunked_ = next_chunked;
      launch_candidates();
      if (mixes_) mix_with_running();
    }
    flush_requeued();
    return !candidates_.empty();
  }

  void start_budget() {
    const std::int64_t mixed = mixes_ ? batch_.size() : 0;
    budget_ = {.total_offset = static_cast<double>(mixed),
               .cur_offset = mixed,
               .rem_input = settings_.max_prefill_tokens - mixed,
               .rem_chunk = chunks_ ? settings_.chunked_prefill_size - mixed : INT64_MAX};
    lengths_ = {};
    double expected = 0;
    batch_.visit_from(0, [&](const Request& request) { expected += expected_tokens(request); });
    budget_.total_offset += expected;
  }

  // Output that a running request is expected to add.
  double expected_tokens(const Request& request) const {
    const std::int64_t left = request.limit_tokens() - request.num_output_tokens();
    return static_cast<double>(clipped(left)) *
           (request.ignores_eos ? 1.0 : new_token_ratio_.value());
  }

  double rem_total() const { return static_cast<double>(available()) - budget_.total_offset; }
  std::int64_t rem_current() const { return available() - budget_.cur_offset; }
  std::int64_t available() const {
    return (books_->kv_cache().num_free_blocks() + books_->kv_cache().num_evictable_blocks()) *
           page_size_;
  }

  Verdict verdict() const {
    if (rem_total() <= 0 || rem_current() <= 0) return Verdict::NoToken;
    const bool is_used_up = budget_.rem_input <= 0 || budget_.rem_chunk <= 0;
    return is_used_up ? Verdict::Other : Verdict::Continue;
  }

  void reserve(std::int64_t num_tokens, std::int64_t max_new) {
    const std::int64_t input = ceil_page(num_tokens);
    budget_.total_offset += static_cast<double>(input + page_size_ + max_new);
    budget_.cur_offset += input + page_size_;
    budget_.rem_input -= input;
    if (chunks_) budget_.rem_chunk -= input;
  }

  // Takes the next chunk of the unfinished prompt, even without tokens left for it, because its
  // blocks would otherwise never be released. Returns the request if its prompt is not done then.
  Request* continue_chunk() {
    Request& request = *chunked_;
    const std::int64_t extend = request.num_uncomputed_tokens();
    const auto room = static_cast<std::int64_t>(rem_total());
    const std::int64_t limited = std::min(budget_.rem_chunk, room);
    const std::int64_t limit =
        std::min(limited > 0 ? limited : std::max<std::int64_t>(budget_.rem_chunk, 1),
                 order_.chunk_limit(extend, budget_.rem_chunk));
    const std::int64_t num_tokens = std::min(extend, limit);
    candidates_.push_back({&request, {}, static_cast<std::int32_t>(num_tokens), false});
    reserve(num_tokens, num_tokens == extend ? clipped(request.limit_tokens()) : 0);
    return extend > limit ? &request : nullptr;
  }

  // Takes the request if it can be taken. Returns whether the next one may be considered.
  bool consider(Request& request, Request*& next_chunked) {
    if (verdict() == Verdict::Other) return false;
    const std::int64_t num_held = chunked_ == nullptr ? 0 : 1;
    if (std::ssize(candidates_) >= num_allocatable(num_held)) batch_is_full_ = true;
    if (batch_is_full_ && !(preempts_ && preempt_for(request))) return false;
    const PrefixHit hit = books_->kv_cache().find_prefix(request);
    tries_[request.id] = {request.num_tokens(), hit.num_tokens};
    if (settings_.prefill_max_requests &&
        std::ssize(candidates_) >= *settings_.prefill_max_requests) {
      return false;
    }
    const bool is_fixed = request.ignores_eos && !books_->kv_cache().caches_prefixes();
    const Verdict answer =
        is_fixed ? add_fixed(request, hit, next_chunked) : add_one(request, hit, next_chunked);
    if (answer == Verdict::NoToken) {
      batch_is_full_ = !candidates_.empty() || !batch_.empty();
    }
    return answer == Verdict::Continue;
  }

  Verdict add_one(Request& request, const PrefixHit& hit, Request*& next_chunked) {
    const std::int64_t extend = request.num_tokens() - hit.num_tokens;
    const std::int64_t left = request.limit_tokens() - request.num_output_tokens();
    const auto total =
        static_cast<double>(extend + clipped(std::max<std::int64_t>(left, 0)) + page_size_);
    books_->kv_cache().lock(hit);
    std::int64_t num_tokens = extend;
    Verdict refused = Verdict::Continue;
    if (total >= rem_total()) {
      refused = Verdict::NoToken;
    } else if (!chunks_) {
      // Without chunking the first request is always allowed.
      const bool is_over = !candidates_.empty() && ceil_page(extend) >= budget_.rem_input;
      if (is_over) refused = Verdict::Other;
    } else if (ceil_page(extend) > budget_.rem_chunk) {
      const bool is_second = next_chunked != nullptr && order_.takes_shorter_prompts();
      num_tokens = budget_.rem_chunk / page_size_ * page_size_;
      if (num_tokens <= 0 || is_second) refused = Verdict::Other;
    }
    if (refused != Verdict::Continue) {
      books_->kv_cache().unlock(hit);
      return refused;
    }
    if (num_tokens < extend) next_chunked = &request;
    add_candidate(request, hit, num_tokens, num_tokens < extend);
    return verdict();
  }

  // add_one_req_ignore_eos: without prefix caching, requests of known length are admitted if every
  // one of them can go on while the shorter ones end.
  Verdict add_fixed(Request& request, const PrefixHit& hit, Request*& next_chunked) {
    const std::int64_t extend = request.num_tokens();
    const std::int64_t paged = ceil_page(extend) + page_size_;
    if (static_cast<double>(paged) > std::min(static_cast<double>(rem_current()), rem_total())) {
      return Verdict::NoToken;
    }
    note_length(request);
    if (!lengths_.can_go_on(rem_current() - paged)) return Verdict::NoToken;
    std::int64_t num_tokens = extend;
    if (chunks_ && extend > budget_.rem_chunk) {
      // SGLang forgets the first of two unfinished prompts in a batch (`lost chunk` in
      // docs/reference/conformance.md).
      if (budget_.rem_chunk <= 0 || next_chunked != nullptr) return Verdict::Other;
      num_tokens = budget_.rem_chunk;
      next_chunked = &request;
    }
    add_candidate(request, hit, num_tokens, num_tokens < extend);
    return verdict();
  }

  void note_length(const Request& request) {
    if (!lengths_.is_empty()) return lengths_.add(request, new_token_ratio_.value());
    std::vector<const Request*> requests = {&request};
    batch_.visit_from(0, [&](const Request& running) { requests.push_back(&running); });
    for (const Candidate& candidate : candidates_) requests.push_back(candidate.request);
    lengths_.begin(requests, new_token_ratio_.value());
  }

  void add_candidate(Request& request, const PrefixHit& hit, std::int64_t num_tokens,
                     bool is_chunk) {
    candidates_.push_back({&request, hit, static_cast<std::int32_t>(num_tokens), true});
    reserve(num_tokens, is_chunk ? 0 : clipped(request.limit_tokens()));
  }

  // Starts the candidates. First as much is evicted as they can need at most.
  void launch_candidates() {
    std::int64_t num_tokens = 0;
    for (const Candidate& candidate : candidates_) num_tokens += candidate.num_tokens;
    if (page_size_ > 1) num_tokens += std::ssize(candidates_) * page_size_;
    evict_for(ceil_div(num_tokens, page_size_));
    const bool locks = books_->kv_cache().caches_prefixes();
    for (const Candidate& candidate : candidates_) {
      Request& request = *candidate.request;
      if (candidate.is_new) {
        books_->start(request, candidate.hit, candidate.hit.num_tokens + candidate.num_tokens);
        if (locks) books_->kv_cache().unlock(candidate.hit);  // the request holds it now
        if (&request == chunked_) num_stashed_ = candidate.hit.num_tokens;
      } else {
        const std::int32_t end = request.num_computed_tokens() + candidate.num_tokens;
        if (!make_room_for_chunk(request, end)) continue;
      }
      books_->add_chunk(request, candidate.num_tokens);
    }
  }

  // Mixed-in decodes can have taken a chunk's room. SGLang runs out of memory then; here running
  // requests are retracted, or in the end the request itself is given up.
  bool make_room_for_chunk(Request& request, std::int32_t end) {
    while (!books_->kv_cache().grow(request, end)) {
      if (batch_.empty()) {
        chunked_ = nullptr;
        books_->give_up(request);
        return false;
      }
      sort_for_retraction();
      retract(batch_.back(), 1);
    }
    return true;
  }

  // The decodes join the prefill, all of them or, without room for them, none.
  void mix_with_running() {
    if (batch_.empty()) return;
    if (batch_.drop_finishing()) batch_is_full_ = false;
    if (batch_.empty() || !has_room_for_batch()) return;
    plan_tokens();
    batch_.visit_from(0, [this](const Request& request) {
      tries_[request.id].num_tokens = request.num_tokens();
    });
    batch_.join_prefill();
  }

  // Preempts running requests of a worse priority, if that gives `request` room and a place.
  bool preempt_for(const Request& request) {
    // By the tokens of its last try; none when it was never tried.
    const Try last = tries_.contains(request.id) ? tries_.at(request.id) : Try{};
    double need =
        static_cast<double>(last.num_tokens - last.num_hit + clipped(request.limit_tokens())) -
        rem_total();
    std::set<const Request*> victims;
    for (const Request* running : order_.worst_first(batch_.all())) {
      const std::int64_t advantage = order_.rank(*running) - order_.rank(request);
      if (advantage <= settings_.priority_scheduling_preemption_threshold) break;
      victims.insert(running);
      need -= expected_tokens(*running);
      if (need <= 0) break;
    }
    if (victims.empty() || need > 0) return false;
    for (Request* running : batch_.all()) {
      if (!victims.contains(running)) continue;
      budget_.total_offset -= expected_tokens(*running);
      retract(*running, batch_.size() - 1);
    }
    return true;
  }

  // ---- Decode ----

  bool decode() {
    const std::ptrdiff_t num_before = batch_.size();
    const bool has_finishing = batch_.drop_finishing();
    if (batch_.empty()) {
      batch_is_full_ = false;
      return false;
    }
    if (has_room_for_batch()) {
      new_token_ratio_.decay();
    } else if (has_finishing) {
      batch_is_full_ = false;  // those give back their blocks after this step
      return false;
    } else {
      retract_until_room();
    }
    if (batch_.size() < num_before) batch_is_full_ = false;
    if (batch_.empty()) return false;
    plan_tokens();
    return true;
  }

  bool has_room_for_batch() {
    std::int64_t num_pages = books_->num_run_blocks();
    const std::size_t first = books_->running().size() - books_->running_behind_run().size();
    batch_.visit_from(first, [&](const Request& request) {
      num_pages +=
          books_->kv_cache().num_missing_blocks(request, request.num_computed_tokens() + 1);
    });
    evict_for(num_pages);
    return books_->kv_cache().num_free_blocks() >= num_pages;
  }

  void plan_tokens() {
    evict_for(batch_.size());  // a page for each, whether it needs one or not
    batch_.visit_from(books_->plan_run(), [this](Request& request) {
      const bool has_room = books_->kv_cache().grow(request, request.num_computed_tokens() + 1);
      METRONOME_CHECK(has_room, "the decodes' room was counted before");
      books_->add_chunk(request, 1);
    });
  }

  // Retracts the requests with the fewest outputs, of equal ones that with the longest prompt. The
  // batch is then in that order. Estimates the ratio anew from the remaining requests.
  void retract_until_room() {
    sort_for_retraction();
    do {
      if (batch_.size() == 1) break;
      retract(batch_.back(), batch_.size() - 1);
    } while (!has_room_for_batch());
    if (!has_room_for_batch()) {
      Request& last = batch_.back();
      batch_.pop();
      books_->kv_cache().release(last);  // nothing of it is cached
      books_->give_up(last);
    }
    new_token_ratio_.estimate(batch_.all());
    flush_requeued();
  }

  // The first to be retracted last.
  void sort_for_retraction() {
    const bool by_priority =
        settings_.retraction_policy == SglangConfig::RetractionPolicy::Priority;
    const auto rank = [&](const Request* request) {
      const std::int64_t priority = by_priority ? -order_.rank(*request) : 0;
      return std::tuple(priority, request->num_output_tokens(), -request->num_prompt_tokens);
    };
    std::vector<Request*> sorted = batch_.all();
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](const Request* a, const Request* b) { return rank(a) > rank(b); });
    batch_.reorder(sorted);
  }

  // Preempts, and makes room for some steps of the requests that remain.
  void retract(Request& victim, std::int64_t num_remaining) {
    batch_.pop();
    books_->preempt(victim);
    tries_[victim.id].num_hit = 0;
    evict_for(ceil_div(num_remaining * settings_.retract_decode_steps, page_size_));
  }

  // ---- Memory ----

  void evict_for(std::int64_t num_blocks) {
    const std::int64_t num_before = books_->kv_cache().num_free_blocks();
    books_->kv_cache().make_free(num_blocks);
    num_evicted_ += books_->kv_cache().num_free_blocks() - num_before;
  }

  // A computed prompt is cached with the first token.
  void on_prompt_committed(Books& books, Request& request, const ScheduledChunk& chunk) override {
    books.kv_cache().cache_prefix(request, chunk.end_position());
  }

  std::int64_t ceil_page(std::int64_t tokens) const {
    return ceil_div(tokens, page_size_) * page_size_;
  }
  std::int64_t clipped(std::int64_t max_new_tokens) const {
    return std::min<std::int64_t>(max_new_tokens, settings_.clip_max_new_tokens);
  }

  Books* books_ = nullptr;  // while it fills a plan
  SglangConfig settings_;
  std::int64_t page_size_;
  std::int64_t capacity_;  // of the KV cache, in tokens
  std::int32_t max_model_len_;
  bool chunks_;
  bool mixes_;
  SglangQueueOrder order_;
  bool preempts_;
  SglangNewTokenRatio new_token_ratio_;
  SglangRunningBatch batch_;
  std::int64_t num_prefill_tokens_ = 0;  // of the last step that prefilled
  // SGLang notes for a decode step the tokens of the prefill that its batch began as.
  std::int64_t num_noted_tokens_ = 0;
  std::int32_t num_in_flight_ = 0;  // steps
  bool is_idle_ = false;
  bool batch_is_full_ = false;
  Request* chunked_ = nullptr;     // in the middle of its prompt
  std::int32_t num_stashed_ = 0;   // its tokens in the cache
  std::int32_t num_deferred_ = 0;  // decode steps before the next prefill
  bool has_deferred_ = false;      // in this plan
  std::int64_t num_evicted_ = 0;   // blocks, in this plan
  std::map<RequestId, Try> tries_;
  std::vector<Request*> requeued_;
  PrefillBudget budget_;
  SglangLengths lengths_;  // of this prefill
  std::vector<Candidate> candidates_;
};

}  // namespace

std::unique_ptr<Policy> make_sglang(const PolicyContext& context) {
  return std::make_unique<SglangPolicy>(context);
}

}  // namespace metronome
