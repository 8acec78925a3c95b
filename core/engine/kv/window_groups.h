// SPDX-License-Identifier: Apache-2.0
// The blocks of sliding-window groups: layers of which a token attends to the last tokens alone. A
// group's table is as long as the request's block_table; blocks before the window are null. It
// decides as SlidingWindowManager of vLLM does (vllm/v1/core/single_type_kv_cache_manager.py).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/kv/block_pool.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/engine/request.h"

namespace metronome {

struct WindowLayout {
  std::int32_t num_tokens = 0;  // of a window; 0 = a model without windows
  std::int32_t num_groups = 1;  // with this window; vLLM's groups have equally many layers
  // Maximum number of blocks that one request holds in such a group. It is limited because a step
  // computes a limited number of tokens (vLLM's admission cap).
  std::int64_t max_blocks = INT64_MAX;
  // Blocks before the end of a prefix that the full attention shares and the window does not are
  // hashed; see KvCacheLayout::retention_interval.
  bool retains_shared_prefixes = true;
  // A window of one token reads no earlier block. Whether its blocks are hashed nevertheless.
  bool caches_one_token_windows = true;
  // As BlockPoolOptions::reuses_unhashed_first, for the blocks of these groups alone.
  bool reuses_unhashed_first = false;
  // Blocks leave the window when no step in flight reads them; otherwise when they are planned.
  bool releases_computed = false;
};

class WindowGroups {
 public:
  struct Options {
    WindowLayout layout;
    // Of Request::group_tables: where the windows' tables begin.
    std::size_t first_table = 0;
    std::int32_t block_size = 0;
    std::int64_t retention_interval = 0;  // as in KvCacheLayout
    // Blocks that leave the window lose their hash if no collected step has filled them.
    bool forgets_unfilled = false;
    bool has_positions = false;  // BlockPoolOptions::num_units is set
  };
  // `pool` must outlive the groups.
  WindowGroups(const Options& options, BlockPool& pool);

  const WindowLayout& layout() const { return options_.layout; }
  std::size_t num_groups() const { return static_cast<std::size_t>(options_.layout.num_groups); }

  // Returns the blocks of a table that no step reads any more to the pool.
  void slide(const Request& request, BlockTable& table);
  // A request that has room for positions [0, return value) needs no slide() before it plans more.
  std::int64_t end_of_stay(const Request& request) const;

  // Free blocks that positions [0, num_positions) of a request without blocks take in all groups,
  // at most `limit` in each. Includes blocks of the hit that are free now. `hit`: the tables of all
  // further groups, or none.
  std::int64_t num_blocks_to_take(const std::vector<BlockTable>& hit, std::int32_t num_hit_tokens,
                                  std::int64_t num_required, bool is_limited) const;

  // Finds the longest prefix of at most `num_blocks` blocks whose last window is cached, and
  // returns its blocks. Near the start of the sequence all earlier blocks must be cached. Fills the
  // windows' tables of `tables`, which has one of every further group.
  std::int64_t find(const HashChain& chain, std::int64_t num_blocks,
                    std::vector<BlockTable>& tables) const;

  // Makes the blocks [num_hashed, num_blocks) of the request visible to others, as far as they are
  // retained.
  void cache(const Request& request, const HashChain& chain, std::int64_t num_hashed,
             std::int64_t num_blocks, std::int32_t shared_prefix_end);

 private:
  std::int64_t num_skipped_blocks(std::int64_t num_computed) const;
  std::int64_t first_read_block(const Request& request) const;
  bool find_block(BlockHash hash, std::size_t at, std::vector<BlockTable>& tables) const;
  bool is_retained(const Request& request, std::int64_t block,
                   std::int32_t shared_prefix_end) const;
  std::uint64_t group_of(std::size_t table) const { return kFirstFurtherGroup + table; }

  Options options_;
  BlockPool& pool_;
  std::int64_t num_blocks_at_end_;  // full ones that a hit needs at its end
};

}  // namespace metronome
