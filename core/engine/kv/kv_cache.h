// SPDX-License-Identifier: Apache-2.0
// KV-cache bookkeeping: the blocks of each request, the positions they have room for, and the
// cached prefixes.
//
// Both backends use one pool. A slotted cache is a pool whose blocks are max_model_len tokens long,
// so a request needs at most one. A hybrid model's sliding-window layers form groups, each with a
// block table of its own over the same pool. Blocks before the window are released. Layers with a
// recurrent state form groups of another kind: state_groups.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/chunked_vector.h"
#include "core/engine/engine_choices.h"
#include "core/engine/kv/block_pool.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/engine/kv/radix_tree.h"
#include "core/engine/kv/state_groups.h"
#include "core/engine/kv/window_groups.h"
#include "core/engine/request.h"

namespace metronome {

// When a full block becomes visible to other requests.
enum class HashTime : std::uint8_t {
  Plan,    // when its step is planned: a request of the same step can hit it (vLLM)
  Commit,  // when that step's result is committed (nano-vllm)
};

// The largest block, in tokens, that members of a run take together.
constexpr std::int32_t kMostTogether = 512;

struct KvCacheLayout {
  std::int64_t num_blocks = 0;
  std::int32_t block_size = 0;  // tokens
  KvAllocation allocation = KvAllocation::Incremental;
  std::int64_t watermark_blocks = 0;  // kept free at admission while requests are running

  // Options that differ between engines; see BlockPoolOptions.
  bool has_null_block = false;
  bool enable_prefix_caching = false;
  // Prefixes are kept in a radix tree instead of an index of blocks (SGLang): the policy says when
  // a request's blocks are cached and what is evicted; cached blocks are not free.
  bool uses_radix_tree = false;
  HashTime hash_time = HashTime::Plan;
  DuplicateRule duplicates = DuplicateRule::KeepAll;
  bool reuses_unhashed_first = false;
  // A step is planned while another is in flight. Under HashTime::Plan a block may be planned
  // before its last token is known. It is hashed when its step is committed (vLLM's
  // AsyncScheduler).
  bool plans_ahead = false;
  // A step may compute draft tokens that turn out wrong. Blocks are hashed up to the known tokens
  // when planned, and at commit up to the accepted drafts.
  bool verifies_drafts = false;
  // A drafter writes KV for so many positions behind the planned ones, below max_positions
  // (max_model_len).
  std::int32_t num_lookahead_tokens = 0;
  std::int32_t max_positions = INT32_MAX;
  // A block's hash covers so many tokens behind the block, too: a drafter's KV depends on them.
  std::int32_t num_hash_lookahead_tokens = 0;

  // Whether to forget the hashes of blocks whose planned step is not computed. That happens when
  // the same plan preempts the request, or it is aborted. vLLM keeps the hashes, so a later request
  // may reuse blocks that were never filled. To reproduce only vLLM's decisions, keep them too; an
  // executor that computes needs such blocks forgotten.
  bool forgets_unfilled_blocks = false;

  // Further groups of layers with a sliding window. They need the null block.
  WindowLayout windows = {};
  // The blocks of further groups that are hashed: all of them (kDenseRetention), or those of the
  // last window before the prompt's last token, before the end of a prefix that the full attention
  // shares and they do not, and before every multiple of so many tokens (0 = none). A multiple of
  // block_size; nullopt = as in the policy's engine.
  std::optional<std::int64_t> retention_interval = {};

  // Further groups of layers that keep a recurrent state. Together with a window, hits end where
  // blocks do: states.hash_unit is block_size.
  StateLayout states = {};

  // The order in which groups take and return blocks; vLLM orders them by the model's layers. Of
  // the further groups, windows come first, or states do. So many of them come before full
  // attention.
  bool has_states_before_windows = false;
  std::int32_t num_groups_before_full = 0;
};

// Layers that share block tables.
struct LayerGroup {
  enum class Kind : std::uint8_t { Full, Window, State };
  Kind kind = Kind::Full;
  std::size_t table = 0;   // of Request::group_tables; full attention has the block_table
  std::size_t number = 0;  // among the groups of its kind
};

// The longest cached prefix of a request.
struct PrefixHit {
  // Whole blocks, but for states with a hash_unit. The last block is then copied when it is taken.
  std::int32_t num_tokens = 0;
  BlockTable blocks;
  // The blocks of each further group, in the order of Request::group_tables; null where unneeded.
  std::vector<BlockTable> group_blocks;
  // Tokens that full attention has cached, where the further groups lack blocks for them; otherwise
  // 0.
  std::int32_t shared_prefix_end = 0;
  RadixTree::Node node = RadixTree::kRoot;  // with a radix tree: where the prefix ends
};

class KvCacheManager {
 public:
  // `hasher` must outlive the manager; only prefix caching needs it.
  explicit KvCacheManager(const KvCacheLayout& layout, const PrefixHasher* hasher = nullptr);
  KvCacheManager(const KvCacheManager&) = delete;
  KvCacheManager& operator=(const KvCacheManager&) = delete;

  // Called before and after a step is planned.
  void begin_plan() {
    if (states_) states_->begin_plan();
  }
  void end_plan();

  // Makes room for positions [0, num_positions) of a running request. Returns false and takes no
  // block when the pool has too few. Blocks before the sliding window, and states that no step
  // reads any more, are released in either case.
  [[nodiscard]] bool grow(Request& request, std::int32_t num_positions) {
    if (num_positions <= request.kv_ready_tokens) return true;
    if (!is_plain_ || num_positions > request.kv_ready_tokens + layout_.block_size) {
      return grow_slowly(request, num_positions);
    }
    if (!pool_.allocate(1, request.block_table)) return false;
    request.kv_ready_tokens += layout_.block_size;
    return true;
  }
  // ---- Runs of decodes (core/engine/decode_run.h) ----

  // Whether the blocks that a run fills are hashed when their request leaves it, all at once, and
  // not one by one when they are full. Nobody misses them: output is unique to its request, and no
  // prompt has it before the request ends (OutputReuse).
  bool hashes_runs_late() const { return hashes_runs_late_; }
  // Whether commit() is called for each block that a run fills.
  bool hashes_runs_at_commit() const { return hashes_at_commit_ && !hashes_runs_late_; }
  // Whether a request of a run needs grow_in_run() and commit() only beyond its kv_ready_tokens.
  bool allows_runs() const {
    return !layout_.verifies_drafts && !states_ && (hashes_at_plan_ || !hashes_runs_at_commit());
  }
  // A request joins a run, with the next step that is planned.
  void join_run(Request& request);
  // As grow(), for a request of a run and the position behind those that it has room for.
  [[nodiscard]] bool grow_in_run(Request& request, std::int32_t num_positions) {
    if (!hashes_runs_late_) return grow(request, num_positions);
    if (num_positions <= request.kv_ready_tokens) return true;
    if (!pool_.allocate(1, request.block_table)) return false;
    request.kv_ready_tokens += layout_.block_size;
    return true;
  }
  // Whether members of a run that take a block in the same steps may take them together, so that
  // nobody looks at each. Plans with runs name no blocks, so it does not matter whose is which.
  bool grows_together() const {
    return layout_.block_size <= kMostTogether && (is_plain_ || hashes_runs_late_) &&
           !hashes_runs_at_commit();
  }
  // So many members with has_blocks_in_reserve take a block. Returns false and takes none when
  // the pool has too few.
  [[nodiscard]] bool grow_together(std::int64_t num_members) {
    return pool_.allocate(num_members, reserve_);
  }
  // Such a member, with the blocks of all its planned tokens, gets those of the reserve. Before
  // that its block_table lacks them, and kv_ready_tokens does not count.
  void take_from_reserve(Request& request);
  // A decode of a run was planned up to `num_positions` outside of it, or as its first step.
  void hash_planned(Request& request, std::int32_t num_positions) {
    if (!hashes_runs_late_ || !hashes_at_plan_) return;
    hash_blocks(request, std::min(num_positions, request.num_tokens()));
  }
  // A request leaves its run. Hashes the blocks of its first `num_tokens` tokens: those that would
  // have a hash by now outside of a run. If it `has_ended` and no prompt has its output, those with
  // output only count as hashed.
  void leave_run(Request& request, std::int32_t num_tokens, bool has_ended);
  bool is_in_run(const Request& request) const {
    return hashes_runs_late_ && index(request.id) < prefixes_.size() &&
           prefixes_[index(request.id)].is_in_run;
  }

  // Blocks that one more position of a request takes at most.
  std::int64_t max_blocks_of_growth() const {
    return blocks_for(1 + layout_.num_lookahead_tokens) * num_attention_groups();
  }

  // Takes `hit`, and room for the first chunk of a request without blocks: for `chunk_tokens`
  // behind the hit, or for all its tokens under eager allocation. Returns false and takes nothing
  // unless `num_kept` blocks would stay free beside the blocks of all its tokens. So unfinished
  // prefills can continue.
  [[nodiscard]] bool admit(Request& request, const PrefixHit& hit, std::int32_t chunk_tokens,
                           std::int64_t num_kept);

  // The longest cached prefix of at most `max_tokens` tokens; empty without prefix caching. Valid
  // until the next call or any change of the cache.
  const PrefixHit& find_prefix(const Request& request, std::int32_t max_tokens);
  // Leaves at least one token to compute, because its output is needed. Covers the tokens that the
  // request receives (RequestSpec), though no block has them yet.
  const PrefixHit& find_prefix(const Request& request) {
    if (!caches_prefixes() && request.num_received_tokens == 0) return no_hit_;
    return find_prefix_or_received(request);
  }
  // The tokens of a hit that were in the cache.
  std::int32_t num_cached_tokens(const PrefixHit& hit) const {
    return std::min(hit.num_tokens,
                    static_cast<std::int32_t>(hit.blocks.size()) * layout_.block_size);
  }

  // With a radix tree: as find_prefix(request, request.num_tokens()) for each of the requests, one
  // after the other, but only where their prefixes end. Finds those that are `known` from before
  // at once.
  void find_prefix_ends(const std::vector<const Request*>& requests,
                        const std::vector<RadixTree::Known*>& known);

  // The hashes of the request's full blocks (with states: units), in order. Valid until the next
  // call. Requires prefix caching.
  const HashChain& block_hashes(const Request& request) {
    return chain_of(request, num_hashable_units(request, request.num_tokens()));
  }

  // The leading blocks of a chain that are cached, whoever asks for them. Changes nothing.
  // The chain has hashes of hash_unit() tokens, each with num_hash_lookahead_tokens() behind.
  std::int64_t count_cached(const HashChain& chain) const;
  std::int32_t hash_unit() const { return hash_unit_; }
  std::int32_t num_hash_lookahead_tokens() const { return layout_.num_hash_lookahead_tokens; }

  // Identifies the first `num_tokens` tokens of a request: for prefixes of equal length, equal
  // names mean equal tokens. kNoHash when it has fewer tokens, or without prefix caching.
  BlockHash name_of_prefix(const Request& request, std::int32_t num_tokens) const;

  // The positions that have room when [0, num_positions) are planned: a drafter's lookahead, too.
  std::int32_t num_positions_with_room(std::int32_t num_positions) const {
    return std::min(num_positions + layout_.num_lookahead_tokens, layout_.max_positions);
  }

  // Free blocks that positions [0, num_positions) of a request without blocks would take. Includes
  // blocks of `hit` that are free now, excludes its others. For the next step the drafter's
  // lookahead counts; for the whole prompt it does not, and WindowLayout::max_blocks applies.
  std::int64_t num_blocks_to_take(const Request& request, const PrefixHit& hit,
                                  std::int32_t num_positions, bool is_whole_prompt = false) const;
  // Takes the blocks of `hit` and new ones for positions [0, num_positions), which are planned, or
  // up to `num_reserved` if that is more. Requires that the request has no blocks and that
  // num_blocks_to_take(request, hit, num_positions) blocks are free.
  void take(Request& request, const PrefixHit& hit, std::int32_t num_positions,
            std::int32_t num_reserved = 0);

  // Blocks that a request lacks for positions [0, num_positions), or for its tokens. Full attention
  // only.
  std::int64_t num_missing_blocks(const Request& request, std::int64_t num_positions) const {
    return std::max<std::int64_t>(0, blocks_for(num_positions) - num_blocks_of(request));
  }
  // Full attention only.
  std::int64_t num_blocks_of(const Request& request) const {
    return request.has_blocks_in_reserve ? blocks_for(request.num_computed_tokens())
                                         : static_cast<std::int64_t>(request.block_table.size());
  }
  std::int64_t num_missing_blocks(const Request& request) const {
    return num_missing_blocks(request, request.num_tokens());
  }

  // Whether commit() makes full cached blocks visible to others: under HashTime::Commit, and with
  // plans_ahead or drafts.
  bool hashes_at_commit() const { return hashes_at_commit_; }
  bool hashes_at_plan() const { return hashes_at_plan_; }
  // Whether decodes are planned before their token is known, and blocks hashed at both times.
  bool plans_unknown_tokens() const { return hashes_at_plan_ && hashes_at_commit_; }
  bool verifies_drafts() const { return layout_.verifies_drafts; }
  // `has_token`: the step gave the request a token.
  void commit(Request& request, bool has_token);

  // Returns every block of a preempted request to the pool.
  void release(Request& request);
  // Returns every block of an ended request to the pool, and forgets its hash chain.
  void release_ended(Request& request);

  // With a radix tree. Caches the blocks of a running request's first `num_tokens` tokens, as far
  // as they are full, and keeps them from eviction as long as it runs; other requests' equal blocks
  // take the place of its own. A node of the tree ends where the prompt ends.
  void cache_prefix(Request& request, std::int32_t num_tokens);
  // Evicts cached blocks until `num_blocks` are free, as far as possible.
  void make_free(std::int64_t num_blocks);
  std::int64_t num_evictable_blocks() const { return tree_ ? tree_->num_evictable_blocks() : 0; }
  // Evictable blocks that a request with this hit keeps from eviction.
  std::int64_t num_lockable_blocks(const PrefixHit& hit) const {
    return tree_ ? tree_->num_lockable_blocks(hit.node) : 0;
  }
  // See RadixTree::depth_first_order; requires a radix tree.
  std::vector<std::size_t> depth_first_order(const std::vector<RadixTree::Node>& ends) const {
    return tree_->depth_first_order(ends);
  }
  // Keeps a hit from eviction until unlock().
  void lock(const PrefixHit& hit) {
    if (tree_) tree_->lock(hit.node);
  }
  void unlock(const PrefixHit& hit) {
    if (tree_) tree_->unlock(hit.node);
  }

  // Reports that the chunk at `first_position` of the request will not be computed.
  void unplan(const Request& request, std::int32_t first_position) {
    if (layout_.forgets_unfilled_blocks) forget_from(request, first_position);
  }
  // For a failed step. forget_free_blocks() makes all free blocks unfindable, because the step may
  // have had to fill them. forget_from() forgets and returns the unfilled blocks of a request that
  // the step computed; other requests may share them.
  void forget_free_blocks();
  std::vector<BlockId> forget_from(const Request& request, std::int32_t first_position);

  // Reports that no code will name the requests of this group of ids (RequestTable::kGroupSize)
  // again.
  void forget_group(std::size_t group) {
    if (prefixes_.has_chunk(group)) prefixes_.forget_chunk(group);
    if (states_) states_->forget_group(group);
  }

  // Makes the blocks that are free unfindable, as if they were overwritten.
  void forget(const BlockTable& blocks);

  std::int64_t blocks_for(std::int64_t num_positions) const {
    return ceil_div(num_positions, layout_.block_size);
  }
  std::int32_t block_size() const { return layout_.block_size; }
  std::int64_t num_blocks() const { return pool_.num_usable(); }  // without the null block
  bool has_null_block() const { return pool_.num_usable() < pool_.num_blocks(); }
  std::int64_t num_free_blocks() const { return pool_.num_free(); }
  std::int64_t num_used_blocks() const { return pool_.num_used() - num_evictable_blocks(); }
  std::int64_t watermark_blocks() const { return layout_.watermark_blocks; }
  // Full attention, and further ones of windows and states, in the order in which they take and
  // return blocks.
  const std::vector<LayerGroup>& groups() const { return groups_; }
  const StateGroups* states() const { return states_ ? &*states_ : nullptr; }
  // Of the hit that a running request was admitted with; see PrefixHit.
  std::int32_t shared_prefix_end_of(const Request& request) const {
    return caches_prefixes() ? prefixes_[index(request.id)].shared_prefix_end : 0;
  }
  bool caches_prefixes() const { return layout_.enable_prefix_caching; }
  const BlockPool& pool() const { return pool_; }
  // Maximum number of blocks that a request of so many tokens holds at a time.
  std::int64_t max_blocks_of(std::int64_t num_tokens) const;

  // Throws InvariantError unless pool and tables agree, and every request's capacity and cached
  // length are within its table. Cost: O(blocks + requests).
  void check_integrity(const RequestTable& requests) const;

 private:
  // A request's state for prefix caching.
  struct PrefixState {
    HashChain chain;                          // of its full blocks or units, as far as requested
    std::int32_t num_hashed = 0;              // leading blocks of each table in index or tree
    bool is_in_run = false;                   // whose blocks are hashed late
    std::int32_t shared_prefix_end = 0;       // of the hit that it was admitted with
    RadixTree::Node node = RadixTree::kRoot;  // that it keeps from eviction
  };

  void make_groups();
  const PrefixHit& find_prefix_or_received(const Request& request);
  bool grow_slowly(Request& request, std::int32_t num_positions);
  void allocate(Request& request, std::int32_t num_positions, std::int64_t num_new,
                bool copies_last = false);
  void copy_last_block(BlockTable& table);
  // Leading blocks of its table.
  std::int32_t num_owned_by_tree(const Request& request) const {
    if (!tree_ || index(request.id) >= prefixes_.size()) return 0;
    return prefixes_[index(request.id)].num_hashed;
  }
  // Groups that keep KV for each token. Their tables of a request are equally long.
  std::int64_t num_attention_groups() const {
    return 1 + (windows_ ? std::int64_t{windows_->layout().num_groups} : 0);
  }
  bool has_full_attention_only() const { return groups_.size() == 1; }
  void leave_behind(Request& request);
  void settle(Request& request, std::int32_t num_positions);
  void set_ready(Request& request, std::int32_t num_positions);
  void hash_blocks(Request& request, std::int32_t num_tokens);
  void hash_full(const Request& request, const HashChain& chain, std::int64_t num_hashed,
                 std::int64_t num_blocks);
  void hash_with_positions(const Request& request, const HashChain& chain, std::int64_t num_hashed,
                           std::int64_t num_blocks);
  void hash_prompt_end(const Request& request, std::int32_t num_tokens, const HashChain& chain);
  void mark_prompt_end(const Request& request, std::int32_t num_tokens, const HashChain& chain);
  // Hash units of its first `num_tokens` tokens, as far as their hashes are known.
  std::int64_t num_hashable_units(const Request& request, std::int32_t num_tokens) const {
    return std::min(num_tokens, request.num_tokens() - num_hash_lookahead_tokens()) / hash_unit_;
  }
  BlockHash hash_of_block(const HashChain& chain, std::int64_t block) const {
    return chain[static_cast<std::size_t>((block + 1) * units_per_block_ - 1)];
  }
  const HashChain& chain_of(const Request& request, std::int64_t num_units);
  PrefixState& state_of(const Request& request) {
    prefixes_.grow_to(index(request.id) + 1);
    return prefixes_[index(request.id)];
  }
  std::int64_t find_full(const HashChain& chain, std::int64_t num_blocks);
  std::int32_t find_full_tokens(const HashChain& chain, std::int32_t max_tokens);

  const KvCacheLayout layout_;
  BlockPool pool_;
  BlockTable reserve_;  // blocks of requests with has_blocks_in_reserve, whoever has which
  std::optional<RadixTree> tree_;
  std::optional<WindowGroups> windows_;
  std::optional<StateGroups> states_;
  std::vector<LayerGroup> groups_;
  const PrefixHasher* hasher_;
  std::int64_t units_per_block_;  // hashes of a block: 1, or more with partial hits
  std::int32_t hash_unit_;        // tokens of a hash
  bool hashes_at_plan_;
  bool hashes_at_commit_;
  bool hashes_runs_late_;
  bool reuses_output_;  // a later prompt may have it
  bool is_plain_;       // a request lacks nothing but blocks, and only beyond its kv_ready_tokens

  PrefixHit hit_;  // of find_prefix
  PrefixHit no_hit_;
  PrefixHit received_;  // the last hit, and received tokens behind it
  ChunkedVector<PrefixState, RequestTable::kGroupSize>
      prefixes_;  // by request id, as far as needed
  // Blocks to copy before the step that is being planned: source, copy, ...
  BlockTable full_copies_;               // of full attention
  BlockTable copies_;                    // scratch of end_plan()
  std::vector<HashChain> spare_chains_;  // reuse the memory of ended requests
  std::vector<BlockTable> spare_tables_;
};

}  // namespace metronome
