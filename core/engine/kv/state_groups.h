// SPDX-License-Identifier: Apache-2.0
// The blocks of recurrent-state groups: layers (Mamba, linear attention) that keep one state per
// request instead of KV per token. A state takes one block. It decides as MambaManager of vLLM 0.33
// does (vllm/v1/core/single_type_kv_cache_manager.py).
//
// Without caching, a request holds one state, and one for each draft. With caching, a group's table
// is indexed by position. Most entries are null. Blocks hold the running state, the states of
// drafts, and the boundary states of the last steps. Later requests find the boundary states that
// are retained.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "core/base/chunked_vector.h"
#include "core/engine/kv/block_pool.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/engine/request.h"

namespace metronome {

struct StateLayout {
  std::int32_t num_groups = 0;  // 0 = a model without recurrent states
  bool caches_states = false;   // vLLM's mode align; otherwise mode none
  // Where requests may end their prefix hits: multiples of so many tokens, > 0. Divides the block
  // size.
  std::int32_t hash_unit = 0;
  // Chunks that export a state begin at multiples of so many tokens (block_size of
  // is_mamba_prefill_checkpoint_valid in vllm/v1/kv_cache_interface.py); 0: of hash_unit.
  std::int32_t export_unit = 0;
  // The model's kernels export the state from inside a chunk, at multiples of so many tokens from
  // the chunk's begin; 0 = they do not.
  std::int32_t checkpoint_alignment = 0;
  std::int32_t num_drafts = 0;  // of a decode; each needs a state of its own
};

// Tokens up to which a request computes a prompt. A resumed one computes its output like a prompt,
// but for the last token.
std::int32_t prefill_end_of(std::int32_t num_prompt_tokens, std::int32_t num_known);
// The last state of a prompt that a later request can use, in tokens: it leaves tokens to compute,
// and those that the state's hash covers. 0 = none.
std::int32_t last_state_position(std::int32_t num_tokens, std::int32_t unit,
                                 std::int32_t num_hash_lookahead);
// Whether the kernels can export the state at `position` from inside the chunk [begin, end).
bool can_export_state(const StateLayout& layout, std::int32_t block_size, std::int32_t begin,
                      std::int32_t end, std::int32_t position);

class StateGroups {
 public:
  struct Options {
    StateLayout layout;
    // Of Request::group_tables: where the states' tables begin.
    std::size_t first_table = 0;
    std::int32_t block_size = 0;
    std::int32_t num_hash_lookahead = 0;  // tokens behind a position that its hash covers
    std::int64_t retention_interval = 0;  // as in KvCacheLayout
  };
  // The next step of a request computes positions [begin, end).
  struct Span {
    std::int32_t begin;
    std::int32_t end;
  };
  // A prefix hit of `num_tokens` tokens: its tables of all further groups, or none.
  struct Hit {
    const std::vector<BlockTable>& tables;
    std::int32_t num_tokens;
  };
  // `pool` must outlive the groups.
  StateGroups(const Options& options, BlockPool& pool);

  const Options& options() const { return options_; }
  std::size_t num_groups() const { return static_cast<std::size_t>(options_.layout.num_groups); }
  bool caches_states() const { return options_.layout.caches_states; }
  // Whether hits may end inside a block.
  bool has_partial_hits() const { return caches_states() && unit() < options_.block_size; }

  // Called before a step is planned. States that the step before computed can be hit from now on.
  void begin_plan() { fresh_hashes_.clear(); }

  // Finds the longest cached state at or before `max_tokens` whose blocks all groups have. Fills
  // the states' tables of `tables`, which has one of every further group, and returns its tokens.
  std::int32_t find(const HashChain& chain, std::int32_t max_tokens,
                    std::vector<BlockTable>& tables) const;

  // Free blocks that the step takes in all groups, those of a hit included. More than the pool has
  // if the hit's state is computed in the step that is being planned. May be negative: drafts had
  // more.
  std::int64_t num_blocks_to_take(const Request& request, const Hit& hit, Span span) const;
  std::int64_t num_blocks_to_take(const Request& request, Span span) const;

  // Returns the states of a group that no step reads any more to the pool.
  void retire(Request& request, std::size_t group);
  // Begins the states' tables of the request with the blocks of a hit. Requires empty tables.
  void adopt_hit(Request& request, const Hit& hit);
  // Decides where the step's checkpoint goes. Before adopt_hit() and allocate().
  void place_checkpoint(const Request& request, Span span);
  // Takes the blocks of a group that were counted. Where a block must be copied before the step,
  // source and copy have one reference more until move_copies().
  void allocate(Request& request, std::size_t group, std::int32_t end);
  // Appends the blocks to copy of a group to `blocks`, each source before its copy.
  void move_copies(std::size_t group, BlockTable& blocks);
  // Makes the states at or before `num_tokens` visible to others, as far as they are retained.
  // `shared_prefix_end` as in PrefixHit.
  void cache(const Request& request, std::int32_t num_tokens, const HashChain& chain,
             std::int32_t shared_prefix_end);
  // The request loses its blocks.
  void forget(const Request& request);
  void forget_group(std::size_t group) {
    if (tracks_.has_chunk(group)) tracks_.forget_chunk(group);
  }

  // Maximum number of blocks that a request of so many tokens holds at a time.
  std::int64_t max_blocks_of(std::int64_t num_tokens) const;

 private:
  // A request's state blocks of one group.
  struct Track {
    std::int32_t num_hashed = 0;   // leading blocks that were hashed or passed over
    std::int32_t num_retired = 0;  // leading blocks that were given back
    bool has_allocated = false;
    std::int32_t checkpoint = 0;         // position, in tokens; 0 = none
    std::int32_t checkpoint_block = -1;  // index
    // The block that ends inside and must be copied before it is written; -1 = none.
    std::int32_t partial_block = -1;
    BlockId partial_source = kNoBlock;
  };
  using Tracks = std::vector<Track>;  // by group

  std::int32_t unit() const { return options_.layout.hash_unit; }
  std::int64_t scale() const { return options_.block_size / unit(); }
  std::size_t table_index(std::size_t group) const { return options_.first_table + group; }
  BlockTable& table_of(Request& request, std::size_t group) const {
    return request.group_tables[table_index(group)];
  }
  const BlockTable& table_of(const Request& request, std::size_t group) const {
    return request.group_tables[table_index(group)];
  }
  Tracks& tracks_of(const Request& request);
  const Track& track_of(const Request& request, std::size_t group) const;
  std::int32_t checkpoint_of(const Request& request, std::size_t group, Span span) const;
  std::int64_t num_to_take(const Request& request, std::size_t group, const BlockTable& hit,
                           std::int32_t num_hit_tokens, Span span) const;
  void retire_blocks(Track& track, BlockTable& table, std::int32_t num_processed);
  void move_state(Track& track, BlockTable& table, std::int32_t end, BlockTable& copies);
  static bool index_in(const BlockTable& table, std::int32_t at);
  void copy_partial(Track& track, BlockTable& table, BlockId copy, bool is_running,
                    BlockTable& copies);
  bool is_retained(const Request& request, std::int64_t block,
                   std::int32_t shared_prefix_end) const;
  bool ends_interval(std::int64_t block) const;
  void cache_boundaries(const Request& request, Track& track, const BlockTable& table,
                        std::size_t group, std::int32_t num_tokens, const HashChain& chain,
                        std::int32_t shared_prefix_end);
  void cache_checkpoint(const Request& request, const Track& track, const BlockTable& table,
                        std::size_t group, const HashChain& chain, std::int32_t shared_prefix_end);
  void cache_tail(const Request& request, Track& track, const BlockTable& table, std::size_t group,
                  std::int32_t num_tokens, const HashChain& chain);
  BlockHash hash_at(const HashChain& chain, std::int64_t num_tokens, std::size_t group) const;

  Options options_;
  BlockPool& pool_;
  // Hashes of states that the step being planned computes. No request of that step can use them.
  std::set<BlockHash> fresh_hashes_;
  std::vector<BlockTable> copies_;  // by group: source, copy, source, copy, ...
  ChunkedVector<Tracks, RequestTable::kGroupSize> tracks_;  // by request id, as far as needed
};

}  // namespace metronome
