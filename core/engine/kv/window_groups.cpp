// SPDX-License-Identifier: Apache-2.0
#include "core/engine/kv/window_groups.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/types.h"

namespace metronome {

WindowGroups::WindowGroups(const Options& options, BlockPool& pool)
    : options_(options),
      pool_(pool),
      num_blocks_at_end_(ceil_div(options.layout.num_tokens - 1, options.block_size)) {
  METRONOME_CHECK(options_.layout.num_tokens > 0, "a window has tokens");
}

// Blocks [0, n) are unneeded after `num_computed` computed tokens. The next token attends to itself
// and to the num_tokens - 1 tokens before it.
std::int64_t WindowGroups::num_skipped_blocks(std::int64_t num_computed) const {
  return std::max<std::int64_t>(0, num_computed - options_.layout.num_tokens + 1) /
         options_.block_size;
}

// The first block that the next steps or those in flight read.
std::int64_t WindowGroups::first_read_block(const Request& request) const {
  return num_skipped_blocks(options_.layout.releases_computed ? request.num_cached_tokens()
                                                              : request.num_computed_tokens());
}

std::int64_t WindowGroups::end_of_stay(const Request& request) const {
  return (first_read_block(request) + 1) * options_.block_size + options_.layout.num_tokens - 1;
}

void WindowGroups::slide(const Request& request, BlockTable& table) {
  const std::int64_t num_skipped = std::min(first_read_block(request), std::ssize(table));
  // Blocks before a null block were released earlier.
  std::int64_t first = num_skipped;
  while (first > 0 && !pool_.is_null(table[static_cast<std::size_t>(first - 1)])) --first;
  if (first == num_skipped) return;
  // Releases them in one call, because the pool keeps the order of blocks released together.
  const auto begin = table.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = table.begin() + static_cast<std::ptrdiff_t>(num_skipped);
  BlockTable skipped(begin, end);
  std::fill(begin, end, kNullBlock);
  if (options_.forgets_unfilled) {
    // A step in flight may not have filled them. If it fails, no table names them any more.
    const std::int64_t num_filled = request.num_cached_tokens() / options_.block_size;
    for (std::int64_t i = std::max(first, num_filled); i < num_skipped; ++i) {
      const BlockId block = skipped[static_cast<std::size_t>(i - first)];
      if (pool_.contents().hash_of(block) != kNoHash) pool_.contents().erase(block);
    }
  }
  pool_.release(skipped, options_.layout.reuses_unhashed_first);
}

std::int64_t WindowGroups::num_blocks_to_take(const std::vector<BlockTable>& hit,
                                              std::int32_t num_hit_tokens,
                                              std::int64_t num_required, bool is_limited) const {
  if (is_limited) num_required = std::min(num_required, options_.layout.max_blocks);
  const std::int64_t num_skipped = num_skipped_blocks(num_hit_tokens);
  const auto is_free = [this](BlockId id) { return pool_.is_free(id); };
  std::int64_t num_blocks = 0;
  for (std::size_t g = 0; g < num_groups(); ++g) {
    const std::span<const BlockId> blocks =
        hit.empty() ? std::span<const BlockId>() : hit[options_.first_table + g];
    num_blocks +=
        std::max<std::int64_t>(0, num_required - std::max(num_skipped, std::ssize(blocks))) +
        std::count_if(blocks.begin(), blocks.end(), is_free);
  }
  return num_blocks;
}

// Whether all groups have cached that block. Then writes them to `tables`, but not those of a
// window of one token, which reads none.
bool WindowGroups::find_block(BlockHash hash, std::size_t at,
                              std::vector<BlockTable>& tables) const {
  for (std::size_t g = 0; g < num_groups(); ++g) {
    const std::size_t table = options_.first_table + g;
    const BlockId id = pool_.contents().find(in_group(hash, group_of(table)));
    if (id == kNoBlock) return false;
    if (num_blocks_at_end_ > 0) tables[table][at] = id;
  }
  return true;
}

std::int64_t WindowGroups::find(const HashChain& chain, std::int64_t num_blocks,
                                std::vector<BlockTable>& tables) const {
  const std::span<BlockTable> found = std::span(tables).subspan(options_.first_table, num_groups());
  for (BlockTable& table : found) table.assign(static_cast<std::size_t>(num_blocks), kNullBlock);
  std::int64_t num_contiguous = 0;
  std::int64_t num_found = -1;
  for (std::int64_t i = num_blocks - 1; i >= 0 && num_found < 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    if (!find_block(chain[at], at, tables)) {
      for (BlockTable& table : found) table[at] = kNullBlock;
      num_contiguous = 0;
    } else if (++num_contiguous >= num_blocks_at_end_) {
      num_found = i + num_contiguous;
    }
  }
  if (num_found < 0) num_found = num_contiguous;
  for (BlockTable& table : found) table.resize(static_cast<std::size_t>(num_found));
  return num_found;
}

// Whether a later request may end its hit in or behind the block.
bool WindowGroups::is_retained(const Request& request, std::int64_t block,
                               std::int32_t shared_prefix_end) const {
  const std::int64_t num_needed = num_blocks_at_end_;
  if (num_needed == 0) return options_.layout.caches_one_token_windows;
  if (options_.retention_interval == kDenseRetention) return true;
  if (options_.retention_interval > 0) {
    const std::int64_t num_per_interval = options_.retention_interval / options_.block_size;
    if (block % num_per_interval >= num_per_interval - num_needed) return true;
  }
  const auto is_before = [&](std::int32_t boundary) {
    const std::int64_t end = boundary / options_.block_size;
    return block < end && block >= end - num_needed;
  };
  return is_before(request.num_prompt_tokens - 1) ||
         (options_.layout.retains_shared_prefixes && is_before(shared_prefix_end));
}

void WindowGroups::cache(const Request& request, const HashChain& chain, std::int64_t num_hashed,
                         std::int64_t num_blocks, std::int32_t shared_prefix_end) {
  PrefixIndex& contents = pool_.contents();
  for (std::size_t g = 0; g < num_groups(); ++g) {
    const std::size_t at = options_.first_table + g;
    const BlockTable& table = request.group_tables[at];
    for (std::int64_t i = num_hashed; i < num_blocks; ++i) {
      contents.prefetch(in_group(chain[static_cast<std::size_t>(i)], group_of(at)));
    }
    for (std::int64_t i = num_hashed; i < num_blocks; ++i) {
      const BlockId block = table[static_cast<std::size_t>(i)];
      if (pool_.is_null(block) || !is_retained(request, i, shared_prefix_end)) continue;
      const BlockHash hash = in_group(chain[static_cast<std::size_t>(i)], group_of(at));
      if (options_.has_positions) {
        contents.erase(block);
        contents.insert(block, hash, i + 1);
      } else {
        contents.insert(block, hash);
      }
    }
  }
}

}  // namespace metronome
