// SPDX-License-Identifier: Apache-2.0
#include "core/engine/kv/kv_cache.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace metronome {
namespace {

template <class Container>
Container pop_spare(std::vector<Container>& spares) {
  if (spares.empty()) return {};
  Container spare = std::move(spares.back());
  spares.pop_back();
  return spare;
}

template <class Container>
void keep_spare(std::vector<Container>& spares, Container& used) {
  if (used.capacity() == 0) return;
  used.clear();
  spares.push_back(std::exchange(used, {}));
}

// Where hashes have positions: the units of a block.
std::optional<std::int64_t> num_units_of(const KvCacheLayout& layout) {
  const StateLayout& states = layout.states;
  if (states.num_groups == 0) return std::nullopt;
  return layout.block_size / states.hash_unit;
}

}  // namespace

KvCacheManager::KvCacheManager(const KvCacheLayout& layout, const PrefixHasher* hasher)
    : pool_({.num_blocks = layout.num_blocks,
             .has_null_block = layout.has_null_block,
             .caches_prefixes = layout.enable_prefix_caching && !layout.uses_radix_tree,
             .duplicates = layout.duplicates,
             .num_units = num_units_of(layout),
             .reuses_unhashed_first = layout.reuses_unhashed_first,
             .shares_blocks = (layout.enable_prefix_caching && !layout.uses_radix_tree) ||
                              layout.states.num_groups > 0}),
      caches_prefixes_(layout.enable_prefix_caching),
      hasher_(hasher),
      block_size_(layout.block_size),
      allocation_(layout.allocation),
      watermark_blocks_(layout.watermark_blocks),
      hash_time_(layout.hash_time),
      hashes_at_plan_(pool_.caches_prefixes() && hash_time_ == HashTime::Plan),
      hashes_at_commit_(pool_.caches_prefixes() && (hash_time_ != HashTime::Plan ||
                                                    layout.plans_ahead || layout.verifies_drafts)),
      forgets_unfilled_blocks_(layout.forgets_unfilled_blocks),
      verifies_drafts_(layout.verifies_drafts),
      num_lookahead_tokens_(layout.num_lookahead_tokens),
      max_positions_(layout.max_positions),
      num_hash_lookahead_tokens_(layout.num_hash_lookahead_tokens),
      units_per_block_(num_units_of(layout).value_or(1)),
      hash_unit_(static_cast<std::int32_t>(block_size_ / units_per_block_)),
      sliding_window_(layout.sliding_window),
      num_window_groups_(sliding_window_ > 0 ? static_cast<std::size_t>(layout.num_window_groups)
                                             : 0),
      num_further_(num_window_groups_ + static_cast<std::size_t>(layout.states.num_groups)),
      first_window_(layout.has_states_before_windows
                        ? static_cast<std::size_t>(layout.states.num_groups)
                        : 0),
      first_state_(layout.has_states_before_windows ? 0 : num_window_groups_),
      num_groups_before_full_(static_cast<std::size_t>(layout.num_groups_before_full)),
      max_window_blocks_(layout.max_window_blocks),
      num_window_blocks_(ceil_div(std::max(sliding_window_ - 1, 0), block_size_)),
      retention_interval_(layout.retention_interval.value_or(kDenseRetention)),
      retains_shared_prefixes_(layout.retains_shared_prefixes),
      caches_one_token_windows_(layout.caches_one_token_windows),
      reuses_unhashed_windows_first_(layout.reuses_unhashed_first ||
                                     layout.reuses_unhashed_windows_first),
      releases_computed_windows_(layout.releases_computed_windows) {
  METRONOME_CHECK(block_size_ > 0, "a block holds at least one token");
  METRONOME_CHECK(sliding_window_ == 0 || layout.has_null_block, "a window needs the null block");
  METRONOME_CHECK(hasher != nullptr || !caches_prefixes(), "prefix caching needs a hasher");
  METRONOME_CHECK(!layout.uses_radix_tree || sliding_window_ == 0, "a tree is of full attention");
  const OutputReuse reuse = pool_.caches_prefixes() ? hasher_->output_reuse() : OutputReuse::Never;
  reuses_output_ = reuse != OutputReuse::Never;
  hashes_runs_late_ = pool_.caches_prefixes() && reuse != OutputReuse::AnyTime &&
                      !has_window() && layout.states.num_groups == 0 &&
                      !verifies_drafts_ && num_lookahead_tokens_ == 0 &&
                      num_hash_lookahead_tokens_ == 0;
  is_plain_ = !hashes_at_plan_ && !has_window() && layout.states.num_groups == 0 &&
              !verifies_drafts_ && num_lookahead_tokens_ == 0;
  if (layout.enable_prefix_caching && layout.uses_radix_tree) tree_.emplace(pool_);
  if (layout.states.num_groups > 0) {
    METRONOME_CHECK(layout.has_null_block, "states need the null block");
    METRONOME_CHECK(sliding_window_ == 0 || units_per_block_ == 1,
                    "with windows, hits end where blocks do");
    states_.emplace(StateGroups::Options{.layout = layout.states,
                                         .first_table = first_state_,
                                         .block_size = block_size_,
                                         .num_hash_lookahead = num_hash_lookahead_tokens_,
                                         .retention_interval = retention_interval_},
                    pool_);
  }
  METRONOME_CHECK(num_groups_before_full_ <= num_further_, "as many groups come before as exist");
  METRONOME_CHECK(retention_interval_ <= 0 || retention_interval_ % block_size_ == 0,
                  "blocks are retained at multiples of the block size");
}

// Blocks [0, n) of the window group are unneeded after `num_computed` computed tokens. The next
// token attends to itself and to the sliding_window - 1 tokens before it.
std::int64_t KvCacheManager::num_skipped_blocks(std::int64_t num_computed) const {
  return std::max<std::int64_t>(0, num_computed - sliding_window_ + 1) / block_size_;
}

// Forgets those of blocks [first, last) of a table that no collected step has filled.
void KvCacheManager::forget_unfilled(const Request& request, const BlockTable& table,
                                     std::int64_t first, std::int64_t last) {
  if (!hashes_at_plan_) return;
  for (std::int64_t i = std::max(first, request.num_cached_tokens() / std::int64_t{block_size_});
       i < last; ++i) {
    const BlockId block = table[static_cast<std::size_t>(i)];
    if (pool_.contents().hash_of(block) != kNoHash) pool_.contents().erase(block);
  }
}

// The first block of the window group that the next steps or those in flight read.
std::int64_t KvCacheManager::window_begin(const Request& request) const {
  return num_skipped_blocks(releases_computed_windows_ ? request.num_cached_tokens()
                                                       : request.num_computed_tokens());
}

void KvCacheManager::slide_windows(Request& request) {
  for (std::size_t g = first_window_; g < first_window_ + num_window_groups_; ++g) {
    slide_window(request, request.group_tables[g]);
  }
}

void KvCacheManager::slide_window(Request& request, BlockTable& table) {
  const auto num_skipped = std::min(window_begin(request), static_cast<std::int64_t>(table.size()));
  // Blocks before a null block were released earlier.
  std::int64_t first = num_skipped;
  while (first > 0 && !pool_.is_null(table[static_cast<std::size_t>(first - 1)])) --first;
  if (first == num_skipped) return;
  // A step in flight may not have filled them. If it fails, no table names them any more.
  if (forgets_unfilled_blocks_) forget_unfilled(request, table, first, num_skipped);
  // Releases them in one call, because the pool keeps the order of blocks released together.
  const auto begin = table.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = table.begin() + static_cast<std::ptrdiff_t>(num_skipped);
  BlockTable skipped(begin, end);
  std::fill(begin, end, kNullBlock);
  pool_.release(skipped, reuses_unhashed_windows_first_);
}

// Returns what no step reads any more, in the order of the groups.
void KvCacheManager::leave_behind(Request& request) {
  const bool has_states_first = first_state_ < first_window_;
  if (!has_states_first) slide_windows(request);
  if (states_) states_->retire(request);
  if (has_states_first) slide_windows(request);
}

bool KvCacheManager::grow_slowly(Request& request, std::int32_t num_positions) {
  if (is_plain_) {
    const std::int64_t num_new = num_missing_blocks(request, num_positions);
    if (!pool_.allocate(num_new, request.block_table)) return false;
    request.kv_ready_tokens += static_cast<std::int32_t>(num_new) * block_size_;
    return true;
  }
  leave_behind(request);
  // The tables of all window groups cover the same positions.
  const std::int64_t num_new = num_missing_blocks(request, num_positions_with_room(num_positions));
  std::int64_t num_taken = num_new * static_cast<std::int64_t>(1 + num_window_groups_);
  if (states_) {
    const StateGroups::Span span{request.num_computed_tokens(), num_positions};
    num_taken += states_->num_blocks_to_take(request, span);
    states_->place_checkpoint(request, span);
  }
  if (num_taken > pool_.num_free()) return false;
  allocate(request, num_positions, num_new);
  return true;
}

// Takes `num_new` blocks of each attention group, and those of states that were counted. Hashes the
// blocks that [0, num_positions) completes. `copies_last`: the last block of full attention is
// shared, and copied first.
void KvCacheManager::allocate(Request& request, std::int32_t num_positions, std::int64_t num_new,
                              bool copies_last) {
  bool has_blocks = true;
  const auto allocate_further = [&](std::size_t begin, std::size_t end) {
    for (std::size_t g = begin; g < end; ++g) {
      if (is_window_table(g)) {
        has_blocks = has_blocks && pool_.allocate(num_new, request.group_tables[g]);
      } else {
        states_->allocate(request, g - first_state_, num_positions);
      }
    }
  };
  allocate_further(0, num_groups_before_full_);
  if (copies_last) copy_last_block(request.block_table);
  has_blocks = has_blocks && pool_.allocate(num_new, request.block_table);
  allocate_further(num_groups_before_full_, request.group_tables.size());
  METRONOME_CHECK(has_blocks, "free blocks were counted before");
  settle(request, num_positions);
}

// Hashes the blocks that [0, num_positions) completes.
void KvCacheManager::settle(Request& request, std::int32_t num_positions) {
  if (hashes_at_plan_) hash_blocks(request, std::min(num_positions, request.num_tokens()));
  set_ready(request, num_positions);
}

// Sets kv_ready_tokens of a request that has planned [0, num_positions): how far it may go before
// the cache must add, hash or release a block.
void KvCacheManager::set_ready(Request& request, std::int32_t num_positions) {
  auto ready = static_cast<std::int64_t>(request.block_table.size()) * block_size_;
  if (hashes_at_plan_) {
    // Of a request with blocks for later chunks, too.
    ready = std::min(ready, (num_positions / block_size_ + 1) * std::int64_t{block_size_}) - 1;
  }
  if (has_window()) {
    const std::int64_t num_skipped = window_begin(request);
    ready = std::min(ready, (num_skipped + 1) * block_size_ + sliding_window_ - 1);
  }
  // The counts go back when drafts are rejected, and each step moves states.
  if (verifies_drafts_ || states_) ready = 0;
  request.kv_ready_tokens = static_cast<std::int32_t>(ready);
}

void KvCacheManager::join_run(Request& request) {
  if (!hashes_runs_late_) return;
  state_of(request).is_in_run = true;
  request.kv_ready_tokens = static_cast<std::int32_t>(request.block_table.size()) * block_size_;
}

void KvCacheManager::leave_run(Request& request, std::int32_t num_tokens, bool has_ended) {
  PrefixState& state = state_of(request);
  state.is_in_run = false;
  if (has_ended && !reuses_output_) {
    hash_blocks(request, std::min(num_tokens, request.num_prompt_tokens));
    const std::int32_t num_blocks = num_tokens / block_size_;
    for (; state.num_hashed < num_blocks; ++state.num_hashed) {
      pool_.contents().mark(request.block_table[static_cast<std::size_t>(state.num_hashed)]);
    }
    return;
  }
  hash_blocks(request, num_tokens);
  set_ready(request, request.num_computed_tokens());
}

bool KvCacheManager::admit(Request& request, const PrefixHit& hit, std::int32_t chunk_tokens,
                           std::int64_t num_kept) {
  const std::int64_t num_needed =
      hit.blocks.empty() && num_further_ == 0
          ? blocks_for(request.num_tokens())
          : num_blocks_to_take(request, hit, request.num_tokens(), true);
  if (num_needed + num_kept > pool_.num_free()) return false;
  const bool is_eager = allocation_ == KvAllocation::Eager;
  take(request, hit, hit.num_tokens + chunk_tokens, is_eager ? request.num_tokens() : 0);
  return true;
}

std::int64_t KvCacheManager::num_blocks_to_take(const Request& request, const PrefixHit& hit,
                                                std::int32_t num_positions,
                                                bool is_whole_prompt) const {
  const auto is_free = [this](BlockId id) { return !tree_ && pool_.is_free(id); };
  const auto num_needed = [&](const BlockTable& blocks, std::int64_t num_required,
                              std::int64_t num_skipped) {
    const auto num_hit = static_cast<std::int64_t>(blocks.size());
    return std::max<std::int64_t>(0, num_required - std::max(num_skipped, num_hit)) +
           std::count_if(blocks.begin(), blocks.end(), is_free);
  };
  const std::int64_t num_required =
      blocks_for(is_whole_prompt ? num_positions : num_positions_with_room(num_positions));
  std::int64_t num_blocks = num_needed(hit.blocks, num_required, 0);
  if (states_) {
    const std::int64_t num_copies = hit.num_tokens % block_size_ != 0 ? 1 : 0;
    num_blocks +=
        num_copies + states_->num_blocks_to_take(request, {hit.group_blocks, hit.num_tokens},
                                                 {hit.num_tokens, num_positions});
  }
  const BlockTable no_hit;
  const std::int64_t limit = is_whole_prompt ? max_window_blocks_ : INT64_MAX;
  for (std::size_t g = 0; g < num_window_groups_; ++g) {
    num_blocks +=
        num_needed(hit.group_blocks.empty() ? no_hit : hit.group_blocks[first_window_ + g],
                   std::min(num_required, limit), num_skipped_blocks(hit.num_tokens));
  }
  return num_blocks;
}

void KvCacheManager::take(Request& request, const PrefixHit& hit, std::int32_t num_positions,
                          std::int32_t num_reserved) {
  METRONOME_CHECK(request.block_table.empty(), "a request takes blocks when it owns none");
  const bool is_partial = std::ssize(hit.blocks) * block_size_ > hit.num_tokens;
  if (states_) states_->place_checkpoint(request, {hit.num_tokens, num_positions});
  const auto adopt_hit = [this](const BlockTable& blocks, BlockTable& table) {
    table = pop_spare(spare_tables_);
    table.assign(blocks.begin(), blocks.end());
    if (tree_) return;  // which goes on owning them
    for (const BlockId id : blocks) {
      if (!pool_.is_null(id)) pool_.retain(id);
    }
  };
  adopt_hit(hit.blocks, request.block_table);
  request.group_tables.resize(num_further_);
  if (states_) states_->adopt_hit(request, {hit.group_blocks, hit.num_tokens});
  if (!hit.group_blocks.empty()) {
    for (std::size_t g = first_window_; g < first_window_ + num_window_groups_; ++g) {
      adopt_hit(hit.group_blocks[g], request.group_tables[g]);
    }
  }
  if (caches_prefixes()) {
    PrefixState& state = state_of(request);
    state.num_hashed = static_cast<std::int32_t>(hit.blocks.size()) - (is_partial ? 1 : 0);
    state.num_hashed_window = static_cast<std::int32_t>(hit.blocks.size());
    state.shared_prefix_end = hit.shared_prefix_end;
    state.node = hit.node;
    lock(hit);
  }
  request.computed_tokens = hit.num_tokens;
  request.cached_tokens = hit.num_tokens;
  slide_windows(request);
  const std::int32_t num_with_room = std::max(num_positions_with_room(num_positions), num_reserved);
  allocate(request, num_positions, num_missing_blocks(request, num_with_room), is_partial);
}

// The request will write behind the end of its hit, in a block that others use.
void KvCacheManager::copy_last_block(BlockTable& table) {
  BlockTable copy;
  const bool has_block = pool_.allocate(1, copy);
  METRONOME_CHECK(has_block, "free blocks were counted before");
  const BlockId source = std::exchange(table.back(), copy.front());
  pool_.retain(copy.front());
  full_copies_.insert(full_copies_.end(), {source, copy.front()});
}

// The engine copies when the plan is complete; until then neither block is free.
void KvCacheManager::end_plan() {
  if (!states_) return;
  const std::size_t num_before =
      std::clamp(num_groups_before_full_, first_state_, first_state_ + states_->num_groups()) -
      first_state_;
  states_->move_copies(0, num_before, copies_);
  copies_.insert(copies_.end(), full_copies_.begin(), full_copies_.end());
  full_copies_.clear();
  states_->move_copies(num_before, states_->num_groups(), copies_);
  std::reverse(copies_.begin(), copies_.end());  // the pool frees the last one first
  pool_.release(copies_);
}

void KvCacheManager::cache_prefix(Request& request, std::int32_t num_tokens) {
  if (!tree_) return;
  const std::int64_t num_blocks = std::min(num_tokens, request.num_tokens()) / block_size_;
  const std::int64_t num_prompt = request.num_prompt_tokens / block_size_;
  const HashChain& chain = chain_of(request, num_blocks);
  PrefixState& state = state_of(request);
  const RadixTree::Node node =
      tree_->insert(chain, num_blocks, request.block_table, state.num_hashed);
  state.num_hashed = std::max(state.num_hashed, static_cast<std::int32_t>(num_blocks));
  if (num_prompt > 0 && num_prompt < num_blocks) {
    tree_->insert(chain, num_prompt, request.block_table, num_prompt);
  }
  tree_->unlock(std::exchange(state.node, node));
  tree_->lock(node);
}

void KvCacheManager::make_free(std::int64_t num_blocks) {
  if (tree_ && num_blocks > pool_.num_free()) tree_->evict(num_blocks - pool_.num_free());
}

void KvCacheManager::release(Request& request) {
  const auto release_further = [&](std::size_t begin, std::size_t end) {
    for (std::size_t g = begin; g < end; ++g) {
      pool_.release(request.group_tables[g], reuses_unhashed_windows_first_);
      keep_spare(spare_tables_, request.group_tables[g]);
    }
  };
  const std::size_t num_before = std::min(num_groups_before_full_, request.group_tables.size());
  release_further(0, num_before);
  if (tree_) {
    BlockTable& table = request.block_table;
    table.erase(table.begin(), table.begin() + num_owned_by_tree(request));
  }
  pool_.release(request.block_table);
  keep_spare(spare_tables_, request.block_table);
  release_further(num_before, request.group_tables.size());
  if (states_) states_->forget(request);
  request.kv_ready_tokens = 0;
  if (!caches_prefixes()) return;
  PrefixState& state = state_of(request);
  state.is_in_run = false;
  state.num_hashed = 0;
  state.num_hashed_window = 0;
  if (tree_) tree_->unlock(std::exchange(state.node, RadixTree::kRoot));
}

void KvCacheManager::release_ended(Request& request) {
  // SGLang caches the KV of a token in flight, too. If its step fails, no other request may have
  // it.
  if (!request.block_table.empty()) {
    cache_prefix(request, forgets_unfilled_blocks_ ? request.num_cached_tokens()
                                                   : request.num_computed_tokens());
  }
  release(request);
  if (caches_prefixes()) keep_spare(spare_chains_, state_of(request).chain);
}

std::vector<BlockId> KvCacheManager::forget_from(const Request& request,
                                                 std::int32_t first_position) {
  std::vector<BlockId> forgotten;
  if (!hashes_at_plan_ && !tree_) return forgotten;
  const auto first = static_cast<std::size_t>(first_position / block_size_);
  const auto forget_in = [&](const BlockTable& table) {
    for (std::size_t i = first; i < table.size(); ++i) {
      if (tree_) {
        forgotten.push_back(table[i]);  // of a chunk that was cached when the next was planned
        continue;
      }
      if (pool_.is_null(table[i]) || pool_.contents().hash_of(table[i]) == kNoHash) continue;
      pool_.contents().erase(table[i]);
      forgotten.push_back(table[i]);
    }
  };
  forget_in(request.block_table);
  for (const BlockTable& table : request.group_tables) forget_in(table);
  return forgotten;
}

void KvCacheManager::forget_free_blocks() {
  if (hashes_at_plan_) forget(pool_.freed_blocks());
  if (tree_) tree_->evict(pool_.num_usable());
}

void KvCacheManager::forget(const BlockTable& blocks) {
  if (tree_) return;  // which has no free block
  for (const BlockId id : blocks) {
    if (pool_.is_free(id)) pool_.forget(id);
  }
}

std::int64_t KvCacheManager::max_blocks_of(std::int64_t num_tokens) const {
  const std::int64_t num_positions =
      std::min<std::int64_t>(num_tokens + num_lookahead_tokens_, max_positions_);
  const std::int64_t num_full = blocks_for(num_positions);
  return num_full + (states_ ? states_->max_blocks_of(num_tokens) : 0) +
         static_cast<std::int64_t>(num_window_groups_) * std::min(num_full, max_window_blocks_);
}

void KvCacheManager::check_integrity(const RequestTable& requests) const {
  std::vector<const BlockTable*> tables;
  std::deque<BlockTable> own_blocks;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!requests.has(static_cast<RequestId>(i))) continue;
    const Request& request = requests[static_cast<RequestId>(i)];
    tables.push_back(
        &own_blocks.emplace_back(request.block_table.begin() + num_owned_by_tree(request),
                                 request.block_table.end()));
    for (std::size_t g = 0; g < request.group_tables.size(); ++g) {
      const BlockTable& table = request.group_tables[g];
      if (!table.empty()) tables.push_back(&table);
      METRONOME_CHECK(!is_window_table(g) || table.size() == request.block_table.size(),
                      "the tables of a request cover different positions");
    }
    const auto capacity = static_cast<std::int64_t>(request.block_table.size()) * block_size_;
    METRONOME_CHECK(request.kv_ready_tokens <= capacity, "ready tokens have no room");
    METRONOME_CHECK(!is_plain_ || request.kv_ready_tokens == capacity, "blocks are not ready");
    METRONOME_CHECK(request.has_ended() || request.num_computed_tokens() <= capacity,
                    "computed tokens have no room");
    METRONOME_CHECK(request.num_cached_tokens() <= request.num_computed_tokens(),
                    "more tokens cached than computed");
  }
  BlockTable cached;
  if (tree_) {
    tree_->check_integrity();
    cached = tree_->blocks();
    tables.push_back(&cached);
  }
  pool_.check_integrity(tables);
}

}  // namespace metronome
