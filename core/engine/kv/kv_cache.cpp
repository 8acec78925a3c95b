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

// A rule for all blocks holds for those of further groups.
KvCacheLayout completed(KvCacheLayout layout) {
  layout.windows.reuses_unhashed_first |= layout.reuses_unhashed_first;
  return layout;
}

// Where hashes have positions: the units of a block.
std::optional<std::int64_t> num_units_of(const KvCacheLayout& layout) {
  const StateLayout& states = layout.states;
  if (states.num_groups == 0) return std::nullopt;
  return layout.block_size / states.hash_unit;
}

}  // namespace

KvCacheManager::KvCacheManager(const KvCacheLayout& layout, const PrefixHasher* hasher)
    : layout_(completed(layout)),
      pool_({.num_blocks = layout.num_blocks,
             .has_null_block = layout.has_null_block,
             .caches_prefixes = layout.enable_prefix_caching && !layout.uses_radix_tree,
             .duplicates = layout.duplicates,
             .num_units = num_units_of(layout),
             .reuses_unhashed_first = layout.reuses_unhashed_first,
             .shares_blocks = (layout.enable_prefix_caching && !layout.uses_radix_tree) ||
                              layout.states.num_groups > 0}),
      hasher_(hasher),
      units_per_block_(num_units_of(layout).value_or(1)),
      hash_unit_(static_cast<std::int32_t>(layout.block_size / units_per_block_)),
      hashes_at_plan_(pool_.caches_prefixes() && layout.hash_time == HashTime::Plan),
      hashes_at_commit_(pool_.caches_prefixes() && (layout.hash_time != HashTime::Plan ||
                                                    layout.plans_ahead || layout.verifies_drafts)) {
  METRONOME_CHECK(layout_.block_size > 0, "a block holds at least one token");
  METRONOME_CHECK(hasher != nullptr || !caches_prefixes(), "prefix caching needs a hasher");
  make_groups();
  const OutputReuse reuse = pool_.caches_prefixes() ? hasher_->output_reuse() : OutputReuse::Never;
  const bool plans_known_tokens =
      has_full_attention_only() && !layout_.verifies_drafts && layout_.num_lookahead_tokens == 0;
  reuses_output_ = reuse != OutputReuse::Never;
  hashes_runs_late_ = pool_.caches_prefixes() && reuse != OutputReuse::AnyTime &&
                      plans_known_tokens && num_hash_lookahead_tokens() == 0;
  is_plain_ = !hashes_at_plan_ && plans_known_tokens;
}

void KvCacheManager::make_groups() {
  const StateLayout& states = layout_.states;
  const auto num_states = static_cast<std::size_t>(states.num_groups);
  const std::size_t num_windows =
      layout_.windows.num_tokens > 0 ? static_cast<std::size_t>(layout_.windows.num_groups) : 0;
  METRONOME_CHECK(num_windows + num_states == 0 || layout_.has_null_block,
                  "windows and states need the null block");
  METRONOME_CHECK(!layout_.uses_radix_tree || num_windows == 0, "a tree is of full attention");
  METRONOME_CHECK(num_windows == 0 || units_per_block_ == 1,
                  "with windows, hits end where blocks do");
  const std::int64_t interval = layout_.retention_interval.value_or(kDenseRetention);
  METRONOME_CHECK(interval <= 0 || interval % layout_.block_size == 0,
                  "blocks are retained at multiples of the block size");
  const auto add = [this](LayerGroup::Kind kind, std::size_t num_groups) {
    for (std::size_t g = 0; g < num_groups; ++g) groups_.push_back({kind, groups_.size(), g});
    return groups_.size() - num_groups;
  };
  std::size_t first_state = 0;
  if (layout_.has_states_before_windows) first_state = add(LayerGroup::Kind::State, num_states);
  const std::size_t first_window = add(LayerGroup::Kind::Window, num_windows);
  if (!layout_.has_states_before_windows) first_state = add(LayerGroup::Kind::State, num_states);
  const auto num_before_full = static_cast<std::size_t>(layout_.num_groups_before_full);
  METRONOME_CHECK(num_before_full <= groups_.size(), "as many groups come before as exist");
  groups_.insert(groups_.begin() + layout_.num_groups_before_full, LayerGroup{});

  if (layout_.enable_prefix_caching && layout_.uses_radix_tree) tree_.emplace(pool_);
  if (num_windows > 0) {
    windows_.emplace(WindowGroups::Options{.layout = layout_.windows,
                                           .first_table = first_window,
                                           .block_size = layout_.block_size,
                                           .retention_interval = interval,
                                           .forgets_unfilled =
                                               layout_.forgets_unfilled_blocks && hashes_at_plan_,
                                           .has_positions = num_states > 0},
                     pool_);
  }
  if (num_states > 0) {
    states_.emplace(StateGroups::Options{.layout = states,
                                         .first_table = first_state,
                                         .block_size = layout_.block_size,
                                         .num_hash_lookahead = num_hash_lookahead_tokens(),
                                         .retention_interval = interval},
                    pool_);
  }
}

// Returns what no step reads any more.
void KvCacheManager::leave_behind(Request& request) {
  for (const LayerGroup& group : groups_) {
    if (group.kind == LayerGroup::Kind::Window) {
      windows_->slide(request, request.group_tables[group.table]);
    } else if (group.kind == LayerGroup::Kind::State) {
      states_->retire(request, group.number);
    }
  }
}

bool KvCacheManager::grow_slowly(Request& request, std::int32_t num_positions) {
  if (is_plain_) {
    const std::int64_t num_new = num_missing_blocks(request, num_positions);
    if (!pool_.allocate(num_new, request.block_table)) return false;
    request.kv_ready_tokens += static_cast<std::int32_t>(num_new) * layout_.block_size;
    return true;
  }
  leave_behind(request);
  const std::int64_t num_new = num_missing_blocks(request, num_positions_with_room(num_positions));
  std::int64_t num_taken = num_new * num_attention_groups();
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
  for (const LayerGroup& group : groups_) {
    switch (group.kind) {
      case LayerGroup::Kind::Full:
        if (copies_last) copy_last_block(request.block_table);
        has_blocks = pool_.allocate(num_new, request.block_table) && has_blocks;
        break;
      case LayerGroup::Kind::Window:
        has_blocks = pool_.allocate(num_new, request.group_tables[group.table]) && has_blocks;
        break;
      case LayerGroup::Kind::State: states_->allocate(request, group.number, num_positions); break;
    }
  }
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
  auto ready = static_cast<std::int64_t>(request.block_table.size()) * layout_.block_size;
  if (hashes_at_plan_) {
    // Of a request with blocks for later chunks, too.
    ready = std::min(ready,
                     (num_positions / layout_.block_size + 1) * std::int64_t{layout_.block_size}) -
            1;
  }
  if (windows_) ready = std::min(ready, windows_->end_of_stay(request));
  // The counts go back when drafts are rejected, and each step moves states.
  if (layout_.verifies_drafts || states_) ready = 0;
  request.kv_ready_tokens = static_cast<std::int32_t>(ready);
}

void KvCacheManager::take_from_reserve(Request& request) {
  const std::int64_t num_taken =
      num_blocks_of(request) - static_cast<std::int64_t>(request.block_table.size());
  METRONOME_CHECK(0 <= num_taken && num_taken <= std::ssize(reserve_),
                  "the reserve has the blocks of its requests");
  const auto first = reserve_.end() - static_cast<std::ptrdiff_t>(num_taken);
  request.block_table.insert(request.block_table.end(), first, reserve_.end());
  reserve_.erase(first, reserve_.end());
  request.has_blocks_in_reserve = false;
  request.kv_ready_tokens =
      static_cast<std::int32_t>(request.block_table.size()) * layout_.block_size;
}

void KvCacheManager::join_run(Request& request) {
  if (!hashes_runs_late_) return;
  state_of(request).is_in_run = true;
  request.kv_ready_tokens =
      static_cast<std::int32_t>(request.block_table.size()) * layout_.block_size;
}

void KvCacheManager::leave_run(Request& request, std::int32_t num_tokens, bool has_ended) {
  PrefixState& state = state_of(request);
  state.is_in_run = false;
  if (has_ended && !reuses_output_) {
    hash_blocks(request, std::min(num_tokens, request.num_prompt_tokens));
    const std::int32_t num_blocks = num_tokens / layout_.block_size;
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
      hit.blocks.empty() && has_full_attention_only()
          ? blocks_for(request.num_tokens())
          : num_blocks_to_take(request, hit, request.num_tokens(), true);
  if (num_needed + num_kept > pool_.num_free()) return false;
  const bool is_eager = layout_.allocation == KvAllocation::Eager;
  take(request, hit, hit.num_tokens + chunk_tokens, is_eager ? request.num_tokens() : 0);
  return true;
}

std::int64_t KvCacheManager::num_blocks_to_take(const Request& request, const PrefixHit& hit,
                                                std::int32_t num_positions,
                                                bool is_whole_prompt) const {
  const std::int64_t num_required =
      blocks_for(is_whole_prompt ? num_positions : num_positions_with_room(num_positions));
  std::int64_t num_blocks = std::max<std::int64_t>(0, num_required - std::ssize(hit.blocks));
  if (!tree_) {
    num_blocks += std::count_if(hit.blocks.begin(), hit.blocks.end(),
                                [this](BlockId id) { return pool_.is_free(id); });
  }
  if (states_) {
    const std::int64_t num_copies = hit.num_tokens % layout_.block_size != 0 ? 1 : 0;
    num_blocks +=
        num_copies + states_->num_blocks_to_take(request, {hit.group_blocks, hit.num_tokens},
                                                 {hit.num_tokens, num_positions});
  }
  if (windows_) {
    num_blocks += windows_->num_blocks_to_take(hit.group_blocks, hit.num_tokens, num_required,
                                               is_whole_prompt);
  }
  return num_blocks;
}

void KvCacheManager::take(Request& request, const PrefixHit& hit, std::int32_t num_positions,
                          std::int32_t num_reserved) {
  METRONOME_CHECK(request.block_table.empty(), "a request takes blocks when it owns none");
  const bool is_partial = std::ssize(hit.blocks) * layout_.block_size > hit.num_tokens;
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
  request.group_tables.resize(groups_.size() - 1);
  if (states_) states_->adopt_hit(request, {hit.group_blocks, hit.num_tokens});
  if (caches_prefixes()) {
    PrefixState& state = state_of(request);
    state.num_hashed = static_cast<std::int32_t>(hit.blocks.size()) - (is_partial ? 1 : 0);
    state.shared_prefix_end = hit.shared_prefix_end;
    state.node = hit.node;
    lock(hit);
  }
  request.computed_tokens = hit.num_tokens;
  request.cached_tokens = hit.num_tokens;
  for (const LayerGroup& group : groups_) {
    if (hit.group_blocks.empty() || group.kind != LayerGroup::Kind::Window) continue;
    BlockTable& table = request.group_tables[group.table];
    adopt_hit(hit.group_blocks[group.table], table);
    windows_->slide(request, table);
  }
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
  for (const LayerGroup& group : groups_) {
    if (group.kind == LayerGroup::Kind::State) {
      states_->move_copies(group.number, copies_);
    } else if (group.kind == LayerGroup::Kind::Full) {
      copies_.insert(copies_.end(), full_copies_.begin(), full_copies_.end());
      full_copies_.clear();
    }
  }
  std::reverse(copies_.begin(), copies_.end());  // the pool frees the last one first
  pool_.release(copies_);
}

void KvCacheManager::cache_prefix(Request& request, std::int32_t num_tokens) {
  if (!tree_) return;
  const std::int64_t num_blocks = std::min(num_tokens, request.num_tokens()) / layout_.block_size;
  const std::int64_t num_prompt = request.num_prompt_tokens / layout_.block_size;
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
  for (const LayerGroup& group : groups_) {
    if (group.kind == LayerGroup::Kind::Full) {
      BlockTable& table = request.block_table;
      table.erase(table.begin(), table.begin() + num_owned_by_tree(request));
      pool_.release(table);
      keep_spare(spare_tables_, table);
    } else if (group.table < request.group_tables.size()) {
      BlockTable& table = request.group_tables[group.table];
      pool_.release(table, layout_.windows.reuses_unhashed_first);
      keep_spare(spare_tables_, table);
    }
  }
  if (states_) states_->forget(request);
  request.kv_ready_tokens = 0;
  if (!caches_prefixes()) return;
  PrefixState& state = state_of(request);
  state.is_in_run = false;
  state.num_hashed = 0;
  if (tree_) tree_->unlock(std::exchange(state.node, RadixTree::kRoot));
}

void KvCacheManager::release_ended(Request& request) {
  // SGLang caches the KV of a token in flight, too. If its step fails, no other request may have
  // it.
  if (!request.block_table.empty()) {
    cache_prefix(request, layout_.forgets_unfilled_blocks ? request.num_cached_tokens()
                                                          : request.num_computed_tokens());
  }
  release(request);
  if (caches_prefixes()) keep_spare(spare_chains_, state_of(request).chain);
}

std::vector<BlockId> KvCacheManager::forget_from(const Request& request,
                                                 std::int32_t first_position) {
  std::vector<BlockId> forgotten;
  if (!hashes_at_plan_ && !tree_) return forgotten;
  const auto first = static_cast<std::size_t>(first_position / layout_.block_size);
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
      std::min<std::int64_t>(num_tokens + layout_.num_lookahead_tokens, layout_.max_positions);
  const std::int64_t num_full = blocks_for(num_positions);
  const std::int64_t in_window = std::min(num_full, layout_.windows.max_blocks);
  return num_full + (num_attention_groups() - 1) * in_window +
         (states_ ? states_->max_blocks_of(num_tokens) : 0);
}

void KvCacheManager::check_integrity(const RequestTable& requests) const {
  std::vector<const BlockTable*> tables = {&reserve_};
  std::deque<BlockTable> own_blocks;
  std::int64_t num_in_reserve = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!requests.has(static_cast<RequestId>(i))) continue;
    const Request& request = requests[static_cast<RequestId>(i)];
    tables.push_back(&own_blocks.emplace_back(
        request.block_table.begin() + num_owned_by_tree(request), request.block_table.end()));
    for (const LayerGroup& group : groups_) {
      if (group.kind == LayerGroup::Kind::Full || request.group_tables.empty()) continue;
      const BlockTable& table = request.group_tables[group.table];
      if (!table.empty()) tables.push_back(&table);
      METRONOME_CHECK(
          group.kind != LayerGroup::Kind::Window || table.size() == request.block_table.size(),
          "the tables of a request cover different positions");
    }
    const std::int64_t capacity = num_blocks_of(request) * layout_.block_size;
    METRONOME_CHECK(request.kv_ready_tokens <= capacity, "ready tokens have no room");
    METRONOME_CHECK(
        !is_plain_ || request.has_blocks_in_reserve || request.kv_ready_tokens == capacity,
        "blocks are not ready");
    num_in_reserve +=
        num_blocks_of(request) - static_cast<std::int64_t>(request.block_table.size());
    METRONOME_CHECK(request.has_ended() || request.num_computed_tokens() <= capacity,
                    "computed tokens have no room");
    METRONOME_CHECK(request.num_cached_tokens() <= request.num_computed_tokens(),
                    "more tokens cached than computed");
  }
  METRONOME_CHECK(num_in_reserve == std::ssize(reserve_), "the reserve is miscounted");
  BlockTable cached;
  if (tree_) {
    tree_->check_integrity();
    cached = tree_->blocks();
    tables.push_back(&cached);
  }
  pool_.check_integrity(tables);
}

}  // namespace metronome
