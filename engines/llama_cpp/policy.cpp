// SPDX-License-Identifier: Apache-2.0
// The llama.cpp server: max_num_seqs slots over one unified KV cache. Generating slots add their
// token to the batch. Then slots with a prompt fill it up to n_batch. Both are in order of slot id.
//
// Here a block stands for a cell of the cache. kv_cache.block_size 1 is exact; with larger blocks a
// common prefix counts in whole blocks. An idle slot holds the cells of its last request. When a
// batch finds no room, idle slots lose them, one after the other. A plan is one call of the
// decoder: what did not fit into it follows in the next plan, before anything else.
//
// Source: tools/server/server-context.cpp and server-queue.cpp of the release that
// llama-cpp-python 0.3.36 has; decisions of that server and of a later one agree with it.
#include "engines/llama_cpp/policy.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/engine/policy.h"
#include "engines/llama_cpp/product.h"
#include "engines/llama_cpp/settings.h"

namespace metronome {
namespace {

constexpr std::int64_t kNeverUsed = -1;

struct Slot {
  Request* request = nullptr;   // nullptr: idle
  bool has_begun = false;       // a batch had tokens of the request
  std::int32_t num_kept = 0;    // tokens of it that the slot had
  BlockTable content;           // whole blocks that the previous request left
  std::int64_t num_held = 0;    // free blocks that count as taken, as they hold that content
  std::int64_t last_used = kNeverUsed;  // number of the plan when its last request ended
};

class LlamaCppPolicy final : public Policy, public LlamaCppDecisions {
 public:
  explicit LlamaCppPolicy(const PolicyContext& context)
      : config_(context.config.settings<LlamaCppConfig>()),
        slots_(static_cast<std::size_t>(context.max_num_seqs)) {}

  const LlamaCppState& state() const override { return state_; }
  bool has_rest() const override { return !batch_.empty(); }

 private:
  std::int64_t max_tokens_per_step() const override { return config_.n_batch; }

  void fill(Books& books) override {
    books_ = &books;
    state_ = {};
    ++num_plans_;
    forget_failed();
    if (batch_.empty()) {
      launch_requests();
      fill_batch();
    }
    compute_batch();
  }

  // The server goes on after all slots have failed.
  TimeNs wake_time(const Books& books) const override {
    return state_.unfit != kNoRequest && !books.waiting().empty() ? 0 : kNever;
  }

  // Requests that found no idle slot are deferred. Each slot that ends puts the first of them in
  // front of everything, so those of several slots come out in reverse.
  void launch_requests() {
    WaitingQueue& waiting = books_->waiting();
    if (num_released_ > 1 && !waiting.empty()) {
      std::vector<Request*> popped;
      waiting.visit_in_order([&](Request& request) {
        if (index(request.id) >= num_seen_) return false;
        popped.push_back(&request);
        return static_cast<std::int64_t>(popped.size()) < num_released_;
      });
      std::for_each(popped.rbegin(), popped.rend(), [this](Request* request) { launch(*request); });
    }
    num_released_ = 0;
    while (!waiting.empty() && launch(*waiting.front())) continue;
    num_seen_ = books_->requests().size();
  }

  // False when no slot is idle.
  bool launch(Request& request) {
    std::int32_t num_common = 0;
    Slot* slot = choose_slot(request, num_common);
    if (slot == nullptr) return false;
    // At least one token is computed, because its output is needed.
    num_common = std::min(num_common, request.num_tokens() - 1);
    PrefixHit kept;
    const std::int32_t num_blocks = num_common / books_->kv_cache().block_size();
    kept.blocks.assign(slot->content.begin(), slot->content.begin() + num_blocks);
    kept.num_tokens = num_blocks * books_->kv_cache().block_size();
    books_->start(request, kept, kept.num_tokens);
    // The rest of the content stays until the prompt begins.
    slot->content.erase(slot->content.begin(), slot->content.begin() + num_blocks);
    hold(*slot, slot->num_held - num_blocks);
    slot->request = &request;
    slot->has_begun = false;
    slot->num_kept = kept.num_tokens;
    state_.launched.push_back({request.id, slot_id(*slot)});
    return true;
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
      // Of slots that ended in one batch the lower one did so first.
      if (least_recent == nullptr || slot.last_used < least_recent->last_used ||
          (slot.last_used == kNeverUsed && least_recent->last_used == kNeverUsed)) {
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
      if (!pool.is_free(block) || pool.contents().hash_of(block) != hashes[i]) break;
    }
    return static_cast<std::int32_t>(i) * books_->kv_cache().block_size();
  }

  void fill_batch() {
    for (const Slot& slot : slots_) {
      if (slot.request != nullptr && slot.request->is_decodable())
        batch_.push_back({slot.request, 1});
    }
    if (!config_.cont_batching && !batch_.empty()) return;
    auto num_left = config_.n_batch - static_cast<std::int32_t>(batch_.size());
    for (Slot& slot : slots_) {
      if (num_left <= 0) return;
      if (slot.request == nullptr || slot.request->state != RequestState::Prefill) continue;
      if (!slot.has_begun) begin(slot);
      const std::int32_t num_tokens = std::min(slot.request->num_uncomputed_tokens(), num_left);
      batch_.push_back({slot.request, num_tokens});
      num_left -= num_tokens;
    }
  }

  void begin(Slot& slot) {
    slot.has_begun = true;
    clear(slot);
    state_.kept.push_back({slot.request->id, slot.num_kept});
  }

  // Computes the batch, or the first part of it for which there is room.
  void compute_batch() {
    std::int32_t n_batch = config_.n_batch;
    while (!batch_.empty()) {
      ++state_.num_tries;
      if (has_room(n_batch)) return plan_part(n_batch);
      if (n_batch > 1 && purge_idle_slot()) continue;
      if (waits_for_last_token()) return batch_.clear();  // its cells become free anyway
      if (n_batch == 1) return fail_all_slots();
      n_batch /= 2;
    }
  }

  // Calls `visit` with the requests of the first `num_tokens` tokens of the batch.
  template <class Visit>
  void visit_part(std::int32_t num_tokens, const Visit& visit) {
    for (Part& part : batch_) {
      if (num_tokens <= 0) return;
      const std::int32_t num_taken = std::min(part.num_tokens, num_tokens);
      num_tokens -= num_taken;
      visit(part, num_taken);
    }
  }

  bool has_room(std::int32_t num_tokens) {
    std::int64_t num_blocks = 0;
    visit_part(num_tokens, [&](const Part& part, std::int32_t num_taken) {
      num_blocks += books_->kv_cache().num_missing_blocks(
          *part.request, part.request->num_computed_tokens() + num_taken);
    });
    return num_blocks <= books_->kv_cache().num_free_blocks() - num_held_;
  }

  void plan_part(std::int32_t num_tokens) {
    visit_part(num_tokens, [this](Part& part, std::int32_t num_taken) {
      Request& request = *part.request;
      const bool has_blocks =
          books_->kv_cache().grow(request, request.num_computed_tokens() + num_taken);
      METRONOME_CHECK(has_blocks, "the blocks of the batch were counted");
      books_->add_chunk(request, num_taken);
      part.num_tokens -= num_taken;
    });
    std::erase_if(batch_, [](const Part& part) { return part.num_tokens == 0; });
  }

  // The first idle slot that holds something loses it. False when there is none.
  bool purge_idle_slot() {
    for (Slot& slot : slots_) {
      if (slot.request != nullptr || slot.num_held == 0) continue;
      clear(slot);
      state_.purged.push_back(slot_id(slot));
      return true;
    }
    return false;
  }

  bool waits_for_last_token() const {
    return std::any_of(books_->running().begin(), books_->running().end(),
                       [](const Request* request) { return request->has_last_token_in_flight(); });
  }

  void fail_all_slots() {
    const Request& unfit = *batch_.front().request;
    state_.unfit = unfit.id;
    state_.unfit_position = unfit.num_computed_tokens();
    state_.unfit_decodes = unfit.is_decodable();
    batch_.clear();
    for (const Slot& slot : slots_) {
      if (slot.request != nullptr) books_->give_up(*slot.request);
    }
    forget_failed();
  }

  // The slot keeps its content unless its step failed.
  void on_end(Books& books, const Request& request, EndReason reason) override {
    const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                   [&](const Slot& s) { return s.request == &request; });
    if (slot == slots_.end()) return;  // it was still waiting
    std::erase_if(batch_, [&](const Part& part) { return part.request == &request; });
    slot->request = nullptr;
    slot->last_used = num_plans_;
    ++num_released_;
    state_.released.push_back({request.id, slot_id(*slot)});
    const auto append = [](BlockTable& to, const BlockTable& blocks, std::int64_t count) {
      to.insert(to.end(), blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count));
    };
    const bool caches = books.kv_cache().caches_prefixes();
    const auto num_blocks = static_cast<std::int64_t>(request.block_table.size());
    if (caches) append(failed_, slot->content, static_cast<std::int64_t>(slot->content.size()));
    slot->content.clear();
    hold(*slot, 0);
    if (reason == EndReason::StepFailed) {
      if (caches) append(failed_, request.block_table, num_blocks);
      return;
    }
    hold(*slot, num_blocks);
    const std::int64_t num_full = request.num_computed_tokens() / books.kv_cache().block_size();
    if (caches) append(slot->content, request.block_table, std::min(num_full, num_blocks));
  }

  // Blocks that no slot holds any more become empty cells, which are filled first.
  void forget_failed() {
    if (failed_.empty()) return;
    books_->kv_cache().forget(failed_);
    failed_.clear();
  }

  void clear(Slot& slot) {
    if (!slot.content.empty()) books_->kv_cache().forget(slot.content);
    slot.content.clear();
    hold(slot, 0);
  }

  void hold(Slot& slot, std::int64_t num_blocks) {
    num_held_ += num_blocks - slot.num_held;
    slot.num_held = num_blocks;
  }

  std::int32_t slot_id(const Slot& slot) const {
    return static_cast<std::int32_t>(&slot - slots_.data());
  }

  struct Part {  // of the batch
    Request* request;
    std::int32_t num_tokens;
  };

  Books* books_ = nullptr;  // while it fills a plan
  LlamaCppConfig config_;
  std::vector<Slot> slots_;     // [max_num_seqs]
  std::vector<Part> batch_;     // what the next plan computes
  BlockTable failed_;           // blocks to forget
  std::int64_t num_held_ = 0;   // by all slots
  std::int64_t num_plans_ = 0;
  std::int64_t num_released_ = 0;  // slots, since requests were last launched
  std::size_t num_seen_ = 0;       // requests that had come then
  LlamaCppState state_;
};

}  // namespace

std::unique_ptr<Policy> make_llama_cpp(const PolicyContext& context) {
  return std::make_unique<LlamaCppPolicy>(context);
}

}  // namespace metronome
