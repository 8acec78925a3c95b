// SPDX-License-Identifier: Apache-2.0
// The llama.cpp server: max_num_seqs slots over one unified KV cache. Generating slots add their
// token to the batch. Then slots with a prompt fill it up to n_batch. Both are in order of slot id.
//
// Here a block stands for a cell of the cache. kv_cache.block_size 1 is exact; with larger blocks a
// common prefix counts in whole blocks. An idle slot's content is the free blocks of its last
// request. New blocks overwrite those that were free longest. This models how llama.cpp clears idle
// slots when the cache is full.
#include "core/engine/policy.h"

#include <algorithm>

#include "core/base/error.h"
#include "engines/llama_cpp/product.h"
#include "engines/llama_cpp/settings.h"

namespace metronome {
namespace {

struct Slot {
  Request* request = nullptr;   // nullptr: idle
  BlockTable content;           // left by the previous request
  std::int64_t last_used = -1;  // number of ended requests when the slot's last one ended
};

class LlamaCppPolicy final : public Policy {
 public:
  explicit LlamaCppPolicy(const PolicyContext& context)
      : config_(context.config.settings<LlamaCppConfig>()),
        slots_(static_cast<std::size_t>(context.max_num_seqs)) {}

 private:
  std::int64_t max_tokens_per_step() const override { return config_.n_batch; }

  void fill(Books& books) override {
    books_ = &books;
    while (true) {
      fill_slots();
      fill_batch();
      if (has_room()) break;
      if (waits_for_last_token()) return;  // its cells become free anyway
      fail_all_slots();
    }
    for (const auto& [request, num_tokens] : batch_) {
      const bool has_blocks =
          books_->kv_cache().grow(*request, request->num_computed_tokens() + num_tokens);
      METRONOME_CHECK(has_blocks, "the blocks of the batch were counted");
      books_->add_chunk(*request, num_tokens);
    }
  }

  void fill_slots() {
    while (Request* request = books_->waiting().front()) {
      std::int32_t num_common = 0;
      Slot* slot = choose_slot(*request, num_common);
      if (slot == nullptr) return;
      // At least one token is computed, because its output is needed.
      num_common = std::min(num_common, request->num_tokens() - 1);
      PrefixHit kept;
      const std::int32_t num_blocks = num_common / books_->kv_cache().block_size();
      kept.blocks.assign(slot->content.begin(), slot->content.begin() + num_blocks);
      kept.num_tokens = num_blocks * books_->kv_cache().block_size();
      books_->start(*request, kept, kept.num_tokens);
      forget_rest(*slot, num_blocks);
      slot->request = request;
      slot->content.clear();
    }
  }

  // The old content that a slot does not keep becomes empty cells, which are filled first.
  void forget_rest(const Slot& slot, std::int32_t num_kept) {
    BlockTable rest;
    for (auto it = slot.content.begin() + num_kept; it != slot.content.end(); ++it) {
      if (owners_[index(*it)] == &slot) rest.push_back(*it);
    }
    books_->kv_cache().forget(rest);
  }

  // The idle slot with the longest common prefix, if that is similar enough. Otherwise the slot
  // idle for longest, or the last of several unused ones. nullptr when none is idle. Sets
  // `num_common` to the number of common tokens.
  Slot* choose_slot(const Request& request, std::int32_t& num_common) {
    Slot* most_similar = nullptr;
    Slot* least_recent = nullptr;
    std::int32_t num_shared_by_least_recent = 0;
    for (Slot& slot : slots_) {
      if (slot.request != nullptr) continue;
      const std::int32_t num_shared = num_common_tokens(slot, request);
      if (num_shared > num_common && is_similar(num_shared, request)) {
        most_similar = &slot;
        num_common = num_shared;
      }
      if (least_recent == nullptr || slot.last_used <= least_recent->last_used) {
        least_recent = &slot;
        num_shared_by_least_recent = num_shared;
      }
    }
    if (most_similar != nullptr) return most_similar;
    num_common = num_shared_by_least_recent;
    return least_recent;
  }

  bool is_similar(std::int32_t num_shared, const Request& request) const {
    if (config_.slot_prompt_similarity == 0) return false;  // 0 switches this off
    return num_shared > config_.slot_prompt_similarity * request.num_tokens();
  }

  // Tokens at the start of the request that the slot still holds.
  std::int32_t num_common_tokens(const Slot& slot, const Request& request) {
    if (slot.content.empty()) return 0;
    const HashChain& hashes = books_->kv_cache().block_hashes(request);
    const BlockPool& pool = books_->kv_cache().pool();
    const std::size_t num_blocks = std::min(hashes.size(), slot.content.size());
    std::size_t i = 0;
    for (; i < num_blocks; ++i) {
      const BlockId block = slot.content[i];
      if (owners_[index(block)] != &slot || !pool.is_free(block)) break;
      if (pool.contents().hash_of(block) != hashes[i]) break;
    }
    return static_cast<std::int32_t>(i) * books_->kv_cache().block_size();
  }

  void fill_batch() {
    batch_.clear();
    for (const Slot& slot : slots_) {
      if (slot.request != nullptr && slot.request->is_decodable())
        batch_.push_back({slot.request, 1});
    }
    if (!config_.cont_batching && !batch_.empty()) return;
    auto num_left = config_.n_batch - static_cast<std::int32_t>(batch_.size());
    for (const Slot& slot : slots_) {
      if (num_left <= 0) return;
      if (slot.request == nullptr || slot.request->state != RequestState::Prefill) continue;
      const std::int32_t num_tokens = std::min(slot.request->num_uncomputed_tokens(), num_left);
      batch_.push_back({slot.request, num_tokens});
      num_left -= num_tokens;
    }
  }

  // When the batch has no room, llama.cpp halves n_batch and computes a part. But the rest follows
  // in the same step, and n_batch 1 has too few blocks too. So one check of the whole batch
  // suffices.
  bool has_room() const {
    std::int64_t num_blocks = 0;
    for (const auto& [request, num_tokens] : batch_) {
      num_blocks += books_->kv_cache().num_missing_blocks(
          *request, request->num_computed_tokens() + num_tokens);
    }
    return num_blocks <= books_->kv_cache().num_free_blocks();
  }

  bool waits_for_last_token() const {
    return std::any_of(books_->running().begin(), books_->running().end(),
                       [](const Request* request) { return request->has_last_token_in_flight(); });
  }

  void fail_all_slots() {
    for (const Slot& slot : slots_) {
      if (slot.request != nullptr) books_->give_up(*slot.request);
    }
  }

  // The slot keeps its content unless its step failed.
  void on_end(Books& books, const Request& request, EndReason reason) override {
    const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                   [&](const Slot& s) { return s.request == &request; });
    if (slot == slots_.end()) return;  // it was still waiting
    slot->request = nullptr;
    slot->last_used = ++num_ended_;
    if (reason == EndReason::StepFailed || !books.kv_cache().caches_prefixes()) return;
    slot->content = request.block_table;
    owners_.resize(static_cast<std::size_t>(books.kv_cache().pool().num_touched()), nullptr);
    for (const BlockId block : slot->content) owners_[index(block)] = &*slot;
  }

  struct Part {  // of the batch
    Request* request;
    std::int32_t num_tokens;
  };

  Books* books_ = nullptr;  // while it fills a plan
  LlamaCppConfig config_;
  std::vector<Slot> slots_;          // [max_num_seqs]
  std::vector<const Slot*> owners_;  // [touched blocks], the slot that last left content in a block
  std::vector<Part> batch_;          // of the current plan
  std::int64_t num_ended_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_llama_cpp(const PolicyContext& context) {
  return std::make_unique<LlamaCppPolicy>(context);
}

}  // namespace metronome
