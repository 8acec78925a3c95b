// SPDX-License-Identifier: Apache-2.0
// The encoder's budget and cache: which images a step encodes, and how long their embeddings are
// kept. The rules are those of vLLM 0.33 (vllm/v1/core/encoder_cache_manager.py, and
// _try_schedule_encoder_inputs in vllm/v1/core/sched/scheduler.py).
//
// An item is encoded as a whole, in the step whose chunk first needs one of its embeddings.
// Requests with the same content share one entry. A request refers to it until the item's last
// token is computed. Entries without references stay, until others need their room. Sizes are in
// embeddings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/base/python_int_set.h"
#include "core/base/types.h"
#include "core/engine/prompt.h"
#include "core/engine/step_plan.h"

namespace metronome {

struct EncoderSetup {
  const PromptSource* items = nullptr;  // nullptr: prompts have text only
  std::int64_t compute_budget = 0;      // encoded in a step at most; 0: the model takes text only
  std::int64_t cache_size = 0;
  // Budget and cache cut chunks (vLLM). Otherwise every chunk gets what it needs, and a cache that
  // is too small only drops all that nobody refers to.
  bool limits_chunks = false;
  bool disable_chunked_mm_input = false;  // no chunk ends inside an item
  bool plans_ahead = false;               // a step is planned while another is in flight
  // Whether an entry is forgotten when its encoding is taken out of the plan. vLLM keeps it, and
  // later requests find embeddings that were never computed; see KvCacheLayout.
  bool forgets_unfilled = false;

  // As vLLM does for steps of so many tokens and items of at most so many embeddings
  // (compute_mm_encoder_budget in vllm/v1/core/encoder_cache_manager.py).
  void set_sizes(std::int64_t step_tokens, std::int64_t max_item) {
    compute_budget = cache_size = std::max(step_tokens, max_item);
  }
  bool takes_images() const { return compute_budget > 0; }
};

class EncoderCache {
 public:
  // Requires setup.items, which outlives the cache, and positive sizes.
  explicit EncoderCache(const EncoderSetup& setup);

  // Begins a step, with the whole compute budget.
  void begin_plan();
  // As many tokens of the chunk [first, first + num_tokens) as can be computed now; 0: none. The
  // items to encode also cover `num_lookahead` tokens behind it. The request then refers to the
  // entries that it needs and the cache has. take() adds the others.
  std::int32_t fit(RequestId request, std::int32_t first, std::int32_t num_tokens,
                   std::int32_t num_lookahead);
  // Whether fit() was last called for this request, without take().
  bool is_fitted(RequestId request) const { return fitted_ == request; }
  // Makes entries for the items that fit() found, and adds these to `encodings`.
  void take(RequestId request, std::vector<PlannedEncoding>& encodings);
  // The request loses its chunk in this plan, and its references. Removes its encodings. With
  // setup.forgets_unfilled those that others refer to stay, and the entries of the others go.
  void unplan(RequestId request, std::vector<PlannedEncoding>& encodings);

  // Ends the references to items that end at or before `num_computed`.
  void release_computed(RequestId request, std::int32_t num_computed);
  void release(RequestId request);  // all of them
  // Drops the entries of encodings that failed, with all references.
  void forget(std::span<const PlannedEncoding> encodings);
  bool is_held_by(RequestId request) const { return held_.contains(request); }
  // Whether the request refers to an entry of one of these items.
  bool holds_any(RequestId request, std::span<const PlannedEncoding> encodings) const;

  // Appends the contents dropped since the last call; with forgets_unfilled also those made anew.
  void drain_freed(std::vector<std::uint64_t>& out);

  std::int64_t num_free() const { return num_free_; }  // negative if a chunk needed more
  std::int64_t num_held() const { return setup_.cache_size - num_reclaimable_; }
  std::size_t num_entries() const { return entries_.size(); }
  std::size_t num_holders() const { return held_.size(); }
  // For each request that refers to an entry, in the order of their ids.
  template <class Visit>
  void visit_holders(const Visit& visit) const {
    for (const auto& [request, items] : held_) visit(request);
  }
  const EncoderSetup& setup() const { return setup_; }
  // Throws InvariantError when references, entries and sizes disagree.
  void check_integrity() const;

 private:
  struct Entry {
    std::int32_t num_embeddings = 0;
    std::int32_t num_holders = 0;     // requests
    std::int64_t released_order = 0;  // key of released_, without holders
  };
  using Entries = std::map<std::uint64_t, Entry>;
  using Items = std::vector<std::int32_t>;
  // The order of its items is the order in which they are released, and so dropped.
  using HeldItems = PythonIntSet;

  const EncoderItem& item_of(RequestId request, std::int32_t item) const;
  bool has_content(RequestId request, const Items& items, std::uint64_t content) const;
  bool make_room(std::int32_t num_embeddings, std::int64_t num_planned);
  void refer(RequestId request, std::int32_t item, Entry& entry);
  template <class IsOver>
  void release_items(RequestId request, const IsOver& is_over);
  void drop(Entries::iterator entry);

  EncoderSetup setup_;
  Entries entries_;
  std::map<std::int64_t, std::uint64_t> released_;  // contents without references, oldest first
  std::map<RequestId, HeldItems> held_;
  std::vector<std::uint64_t> freed_;
  std::int64_t num_free_;
  std::int64_t num_reclaimable_;  // free, or of entries without references
  std::int64_t next_order_ = 0;
  std::int64_t budget_left_ = 0;  // of the step that is being planned
  // Of the last fit().
  RequestId fitted_ = kNoRequest;
  std::int64_t num_returned_ = 0;  // of the budget since then, by victims
  Items to_encode_;
  Items repeated_;  // with the content of one to encode
};

}  // namespace metronome
