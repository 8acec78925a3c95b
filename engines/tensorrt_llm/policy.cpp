// SPDX-License-Identifier: Apache-2.0
// TensorRT-LLM. A capacity scheduler chooses the requests whose KV blocks fit, in order of arrival.
// Then a micro-batch scheduler fills a step of max_num_tokens with them. As in the engine, neither
// knows how much of a prompt is cached. A hit is found when the first chunk is scheduled. The chunk
// then begins after the hit, and other requests do not get the saved tokens. Finally the
// executor of its PyTorch backend may hold the contexts back (PyExecutor._waiting_requests of 1.1;
// later versions take cached tokens off).
#include "core/engine/policy.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/engine/policies/held_prompts.h"
#include "engines/tensorrt_llm/product.h"
#include "engines/tensorrt_llm/settings.h"

namespace metronome {
namespace {

using Capacity = TensorRtLlmConfig::Capacity;
using Chunking = TensorRtLlmConfig::Chunking;

class TensorRtLlmPolicy final : public Policy {
 public:
  explicit TensorRtLlmPolicy(const PolicyContext& context)
      : TensorRtLlmPolicy(context, context.config.settings<TensorRtLlmConfig>()) {}
  TensorRtLlmPolicy(const PolicyContext& context, const TensorRtLlmConfig& config)
      : kv_cache_(context.kv_cache),
        capacity_(config.capacity_scheduler_policy),
        chunking_(config.context_chunking_policy),
        max_num_seqs_(context.max_num_seqs),
        chunks_(config.enable_chunked_context),
        max_num_tokens_(config.max_num_tokens),
        unit_(config.chunk_unit_size > 0 ? config.chunk_unit_size : context.kv_cache.block_size()),
        batch_wait_iters_(config.batch_wait_timeout_iters),
        batch_wait_tokens_(config.batch_wait_max_tokens_ratio *
                           static_cast<double>(max_num_tokens_)) {}

  std::string refusal(const Books& books, const RequestSpec& spec) const override {
    if (!can_compute(spec.num_prompt_tokens)) {
      const std::string limit = fmt::format("max_num_tokens = {}", max_num_tokens_);
      if (!chunks_) return "and a prompt is computed in one step; " + limit;
      return fmt::format("and a chunk of {} does not fit in a step; {}", unit_, limit);
    }
    if (capacity_ == Capacity::MaxUtilization) return Policy::refusal(books, spec);
    const std::int64_t num_blocks =
        books.kv_cache().blocks_for(std::int64_t{spec.num_prompt_tokens} + spec.limit_tokens());
    if (num_blocks <= books.kv_cache().num_blocks()) return {};
    return fmt::format("that is {} KV blocks to completion; the cache has {}", num_blocks,
                       books.kv_cache().num_blocks());
  }

  std::string remark() const override {
    return held_prompts_.remark("max_num_tokens", "enable_chunked_context", max_num_seqs_);
  }

 private:
  struct Context {
    Request* request;
    std::int32_t num_tokens;  // of its chunk
  };

  std::int64_t max_tokens_per_step() const override { return max_num_tokens_; }
  // This plan paused it; the next plan considers it again.
  void requeue(Books&, Request& request) override {
    paused_.push_back(&request);
    note_end(request);
  }
  void on_end(Books&, const Request& request, EndReason) override {
    if (request.state != RequestState::Waiting) note_end(request);
  }

  void fill(Books& books) override {
    books_ = &books;
    held_prompts_.begin_plan(books_->plan().step_index);
    refuse_grown();
    find_new_blocks();
    fitting_.clear();
    books_->sort_running_by_arrival();
    if (!may_fit_run()) books_->running_list();  // all are looked at one by one
    if (capacity_ == Capacity::MaxUtilization) {
      fit_next_step();
    } else {
      fit_to_completion();
    }
    fill_micro_batch();
    for (Request* request : paused_) books_->waiting().push_in_turn(*request);
    paused_.clear();
  }

  // Whether a step has room for a context of this many tokens, or for a chunk of it.
  bool can_compute(std::int32_t num_tokens) const {
    return num_tokens <= max_num_tokens_ || (chunks_ && unit_ <= max_num_tokens_);
  }

  // Without chunks, a paused request can have grown too long for one step.
  void refuse_grown() {
    while (Request* first = books_->waiting().front()) {
      if (can_compute(first->num_tokens())) return;
      books_->refuse(*first);
    }
  }

  // The first uncached block of a context; kNoHash if all are cached.
  BlockHash first_new_block(const Request& request) {
    for (const BlockHash hash : books_->kv_cache().block_hashes(request)) {
      if (kv_cache_.pool().contents().find(hash) == kNoBlock) return hash;
    }
    return kNoHash;
  }

  void find_new_blocks() {
    std::erase_if(contexts_begun_, [](const Request* request) {
      return request->num_cached_tokens() >= request->num_prompt_tokens;
    });
    new_blocks_.clear();
    if (capacity_ == Capacity::StaticBatch || !kv_cache_.caches_prefixes() ||
        books_->waiting().empty()) {
      return;
    }
    for (const Request* request : contexts_begun_) {
      new_blocks_.push_back(first_new_block(*request));
    }
  }

  // Whether another context computes the first block that `request` would compute, so a later step
  // can reuse it. If not, records `request` as the one that computes it.
  bool waits_for_reuse(const Request& request) {
    if (capacity_ == Capacity::StaticBatch || !kv_cache_.caches_prefixes()) return false;
    const BlockHash hash = first_new_block(request);
    if (hash == kNoHash) return false;
    if (std::find(new_blocks_.begin(), new_blocks_.end(), hash) != new_blocks_.end()) return true;
    new_blocks_.push_back(hash);
    return false;
  }

  // The blocks that it lacks then.
  std::int64_t num_blocks_to_completion(const Request& request) const {
    return num_final_blocks(request) - kv_cache_.num_blocks_of(request);
  }
  std::int64_t num_final_blocks(const Request& request) const {
    return kv_cache_.blocks_for(std::int64_t{request.num_prompt_tokens} + request.limit_tokens());
  }
  void note_start(const Request& request) {
    num_final_blocks_ += num_final_blocks(request);
    contexts_begun_.push_back(&request);
  }
  void note_end(const Request& request) {
    num_final_blocks_ -= num_final_blocks(request);
    std::erase(contexts_begun_, &request);
  }

  // The decodes of the run are older than all others and fit as a whole, unless a waiting request
  // is older, or they exceed a step's tokens or the free blocks.
  std::int32_t num_run() const { return books_->num_run_decodes(); }
  bool may_fit_run() const {
    if (num_run() > max_num_tokens_) return false;
    if (capacity_ != Capacity::MaxUtilization || num_run() == 0) return true;
    const std::size_t behind = books_->running_behind_run().size();
    const Request& last = **(books_->running().rbegin() + static_cast<std::ptrdiff_t>(behind));
    const Request* first = books_->waiting().front();
    return (first == nullptr || first->id > last.id) &&
           books_->num_run_blocks() <= kv_cache_.num_free_blocks();
  }

  // GUARANTEED_NO_EVICT and STATIC_BATCH: started requests continue. Blocks for their completion
  // are reserved before others may start.
  void fit_to_completion() {
    std::int64_t num_free = kv_cache_.num_free_blocks();
    num_free -= num_final_blocks_ - kv_cache_.pool().num_references();
    for (const Request* request : books_->finishing()) {
      num_free += num_blocks_to_completion(*request);
    }
    for (Request* request : books_->running_behind_run()) {
      if (!request->has_last_token_in_flight()) fitting_.push_back(request);
    }
    if (capacity_ == Capacity::StaticBatch && !books_->nothing_runs()) return;
    auto num_left = static_cast<std::size_t>(max_num_seqs_) - books_->running().size();
    books_->waiting().visit_in_order([&](Request& pending) {
      if (num_left == 0) return false;
      if (waits_for_reuse(pending)) return true;
      const std::int64_t num_blocks = num_blocks_to_completion(pending);
      if (num_blocks > num_free) return false;
      num_free -= num_blocks;
      --num_left;
      fitting_.push_back(&pending);
      return true;
    });
  }

  // MAX_UTILIZATION: takes started and waiting requests alike, in order of arrival, while the
  // blocks of their next step fit.
  void fit_next_step() {
    num_promised_ = books_->num_run_blocks();
    num_seqs_ = std::ssize(books_->finishing()) + num_run();
    std::size_t next = books_->running().size() - books_->running_behind_run().size();
    const auto fit_started_before = [&](RequestId id) {  // pausing only shortens the list
      while (next < books_->running().size() && books_->running()[next]->id < id) {
        Request& request = *books_->running()[next++];
        if (!request.has_last_token_in_flight() && !fit_or_pause(request)) return false;
      }
      return true;
    };
    last_id_ = kNoRequest;
    bool goes_on = true;
    books_->waiting().visit_in_order([&](Request& pending) {
      goes_on = fit_started_before(pending.id);
      if (!goes_on || pending.id > last_id_) return false;
      if (!can_compute(pending.num_tokens()) || waits_for_reuse(pending)) return true;
      goes_on = fit_or_pause(pending);
      return goes_on;
    });
    if (goes_on) fit_started_before(kNoRequest);
  }

  // Pauses the last started request until `request` fits or is the last one itself. Returns false
  // when it does not fit; then no later request is tried.
  bool fit_or_pause(Request& request) {
    while (!fits_next_step(request)) {
      const auto& started = books_->running();
      const auto victim = std::find_if(started.rbegin(), started.rend(), [](const Request* last) {
        return !last->has_last_token_in_flight();
      });
      if (victim == started.rend() || (*victim)->id < request.id) return false;
      last_id_ = (*victim)->id;
      books_->preempt(**victim);
      if (last_id_ == request.id) return false;
    }
    return true;
  }

  bool fits_next_step(Request& request) {
    const bool is_generating = request.state == RequestState::Decode;
    const std::int64_t num_blocks = kv_cache_.num_missing_blocks(
        request, is_generating ? request.num_computed_tokens() + 1 : request.num_tokens());
    if (num_seqs_ >= max_num_seqs_ ||
        num_promised_ + num_blocks > kv_cache_.num_free_blocks()) {
      return false;
    }
    ++num_seqs_;
    num_promised_ += num_blocks;
    fitting_.push_back(&request);
    return true;
  }

  // The capacity scheduler passes at most max_num_seqs requests, which is also max_batch_size.
  void fill_micro_batch() {
    contexts_.clear();
    generations_.clear();
    std::int32_t num_tokens = num_run();
    std::int64_t num_context_tokens = 0;  // reducible by chunks
    for (Request* request : fitting_) {
      if (request->state == RequestState::Decode) {
        if (num_tokens == max_num_tokens_) break;
        ++num_tokens;
        generations_.push_back(request);
        continue;
      }
      const std::int32_t wanted = request->num_uncomputed_tokens();
      if (chunks_) {
        num_context_tokens += wanted;
      } else {
        if (wanted > max_num_tokens_ - num_tokens) {
          if (contexts_.empty()) held_prompts_.note(wanted);
          break;
        }
        num_tokens += wanted;
      }
      contexts_.push_back({request, wanted});
    }
    if (num_context_tokens > max_num_tokens_ - num_tokens) {
      chunk_contexts(max_num_tokens_ - num_tokens);
    }
    std::erase_if(contexts_, [](const Context& context) { return context.num_tokens == 0; });
    if (waits_for_batch()) contexts_.clear();
    for (const Context& context : contexts_) plan_context(*context.request, context.num_tokens);
    const std::int32_t num_in_run = num_run();
    books_->plan_run();
    METRONOME_CHECK(books_->plan().run.num_decodes == num_in_run,
                    "the capacity scheduler counted the blocks of the run");
    for (Request* request : generations_) {
      const bool has_room = books_->kv_cache().grow(*request, request->num_computed_tokens() + 1);
      METRONOME_CHECK(has_room, "the capacity scheduler counted the blocks");
      books_->add_chunk(*request, 1);
    }
  }

  // Whether the step would be too small for its contexts. They count whole, whatever a chunk takes.
  bool waits_for_batch() {
    auto num_tokens = static_cast<double>(generations_.size()) + num_run();
    if (contexts_.empty() || num_tokens == 0) return false;
    for (const Context& context : contexts_) num_tokens += context.request->num_tokens();
    if (num_waited_ >= batch_wait_iters_ || num_tokens >= batch_wait_tokens_) {
      num_waited_ = 0;
      return false;
    }
    ++num_waited_;
    return true;
  }

  // Divides `num_left` tokens among contexts that do not fit together, in units unless a chunk is
  // the last.
  void chunk_contexts(std::int32_t num_left) {
    if (chunking_ == Chunking::FirstComeFirstServed) {
      for (Context& context : contexts_) {
        if (context.num_tokens > num_left) context.num_tokens = num_left / unit_ * unit_;
        num_left -= context.num_tokens;
      }
      return;
    }
    for (Context& context : contexts_) context.num_tokens = 0;
    bool advances = true;
    while (advances && num_left > 0) {
      advances = false;
      for (Context& context : contexts_) {
        const std::int32_t unchunked =
            context.request->num_uncomputed_tokens() - context.num_tokens;
        const std::int32_t num_more = std::min(unit_, unchunked);
        if (num_more == 0 || num_more > num_left) continue;
        context.num_tokens += num_more;
        num_left -= num_more;
        advances = true;
      }
    }
  }

  // The first chunk takes the blocks of the whole context.
  void plan_context(Request& request, std::int32_t num_tokens) {
    if (request.state == RequestState::Waiting) {
      books_->start(request, books_->kv_cache().find_prefix(request), request.num_tokens());
      note_start(request);
    }
    books_->add_chunk(request, std::min(num_tokens, request.num_uncomputed_tokens()));
  }

  Books* books_ = nullptr;  // while it fills a plan
  const KvCacheManager& kv_cache_;
  Capacity capacity_;
  Chunking chunking_;
  std::int32_t max_num_seqs_;
  bool chunks_;
  std::int32_t max_num_tokens_;
  std::int32_t unit_;
  std::int32_t batch_wait_iters_;
  double batch_wait_tokens_;
  std::int32_t num_waited_ = 0;  // steps that contexts waited since some ran

  HeldPrompts held_prompts_;
  std::int64_t num_final_blocks_ = 0;  // of all running requests at completion
  std::vector<const Request*> contexts_begun_;

  // State of the current plan.
  std::vector<Request*> fitting_;  // chosen by the capacity scheduler, in order
  std::vector<Context> contexts_;
  std::vector<Request*> generations_;
  std::vector<Request*> paused_;
  std::vector<BlockHash> new_blocks_;  // the next uncached block of every context
  std::int64_t num_promised_ = 0;      // blocks promised to the fitting requests
  std::int64_t num_seqs_ = 0;          // fitting requests, and those with their last token in
                                       // flight
  RequestId last_id_ = kNoRequest;     // the last paused request; no later one is tried
};

}  // namespace

std::unique_ptr<Policy> make_tensorrt_llm(const PolicyContext& context) {
  return std::make_unique<TensorRtLlmPolicy>(context);
}

}  // namespace metronome
