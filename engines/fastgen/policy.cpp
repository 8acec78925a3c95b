// SPDX-License-Identifier: Apache-2.0
// DeepSpeed-FastGen's Dynamic SplitFuse. Every step is filled to max_ragged_batch_size: first
// decodes, then prompts in order of arrival, the last of which is split. A prompt starts or
// continues only if the blocks of its whole rest are free.
#include "core/engine/policy.h"

#include <algorithm>

#include "core/base/error.h"
#include "engines/fastgen/product.h"
#include "engines/fastgen/settings.h"

namespace metronome {
namespace {

class FastGenPolicy final : public Policy {
 public:
  explicit FastGenPolicy(const PolicyContext& context)
      : config_(context.config.settings<FastGenConfig>()) {}

 private:
  std::int64_t max_tokens_per_step() const override { return config_.max_ragged_batch_size; }
  std::int64_t max_running(const Books& books) const override {
    return std::min(books.max_num_seqs(), config_.max_tracked_sequences);
  }
  // It was last in the buffer and stays there, as a prompt.
  void requeue(Books& books, Request& request) override { books.waiting().push_back(request); }

  void fill(Books& books) override {
    books_ = &books;
    do {
      plan_generation();
      plan_prompts();
    } while (books_->plan().empty() && evict_last());
  }

  // Tokens left in the step; 0 when it holds the maximum number of requests.
  std::int32_t num_left() const {
    const auto num_requests = static_cast<std::int32_t>(books_->plan().chunks.size());
    if (num_requests >= config_.max_ragged_sequence_count) return 0;
    return config_.max_ragged_batch_size - books_->plan().num_tokens();
  }

  // A request without a token (no block, or the step is full) comes first the next time. The others
  // rejoin the buffer behind it after their tokens.
  void plan_generation() {
    served_.clear();
    left_out_.clear();
    for (Request* request : books_->running()) {
      const bool gets_none = request->is_decodable() &&
                             (num_left() == 0 || !books_->kv_cache().grow(
                                                     *request, request->num_computed_tokens() + 1));
      if (!gets_none && request->is_decodable()) books_->add_chunk(*request, 1);
      (gets_none ? left_out_ : served_).push_back(request);
    }
    if (left_out_.empty()) return;
    books_->running_list() = left_out_;
    books_->running_list().insert(books_->running_list().end(), served_.begin(), served_.end());
  }

  // A previously split prompt comes before those in the queue.
  void plan_prompts() {
    for (Request* request : books_->unfinished_prefills()) {
      const std::int32_t num_tokens = std::min(request->num_uncomputed_tokens(), num_left());
      if (num_tokens == 0) return;
      if (books_->kv_cache().num_missing_blocks(*request) > books_->kv_cache().num_free_blocks())
        return;
      const bool has_room =
          books_->kv_cache().grow(*request, request->num_computed_tokens() + num_tokens);
      METRONOME_CHECK(has_room, "a part of a prompt fits where all of it does");
      books_->add_chunk(*request, num_tokens);
    }
    while (static_cast<std::int64_t>(books_->running().size()) < max_running(*books_)) {
      Request* request = books_->next_waiting();
      if (request == nullptr) return;
      const std::int32_t num_tokens = std::min(request->num_tokens(), num_left());
      if (num_tokens == 0) return;
      if (books_->kv_cache().blocks_for(request->num_tokens()) >
          books_->kv_cache().num_free_blocks())
        return;
      books_->start(*request, {}, num_tokens);
      books_->add_chunk(*request, num_tokens);
    }
  }

  // Called when nothing can be scheduled: preempts the last request in the buffer that holds KV
  // blocks. The rest of a split prompt is at the buffer's front. Returns false when the cache is
  // empty, or when a request's last token is in flight, which will free its blocks.
  bool evict_last() {
    Request* last = nullptr;
    for (Request* request : books_->running()) {
      const bool is_prompt = request->state == RequestState::Prefill;
      if (request->has_last_token_in_flight()) return false;
      if (!is_prompt || last == nullptr) last = request;
    }
    if (last == nullptr) return false;
    books_->preempt(*last);
    return true;
  }

  Books* books_ = nullptr;  // while it fills a plan
  FastGenConfig config_;
  std::vector<Request*> served_;    // scratch of plan_generation()
  std::vector<Request*> left_out_;  // scratch of plan_generation()
};

}  // namespace

std::unique_ptr<Policy> make_fastgen(const PolicyContext& context) {
  return std::make_unique<FastGenPolicy>(context);
}

}  // namespace metronome
