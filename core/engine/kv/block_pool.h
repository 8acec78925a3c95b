// SPDX-License-Identifier: Apache-2.0
// A fixed set of equal-sized, reference-counted KV blocks. Free blocks may still hold cached
// content. Block ids are the only KV data that scheduler and executors share. The executor owns the
// memory.
//
// Most blocks of a large pool may never be handed out. The record of a block begins with its
// first use, so memory follows the blocks that were in use.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "core/base/types.h"
#include "core/engine/kv/prefix_index.h"
#include "core/engine/request.h"

namespace metronome {

// Options that differ between engines.
struct BlockPoolOptions {
  std::int64_t num_blocks = 0;  // > 0, the null block included
  // In tables block 0 replaces an unneeded block (vLLM). It is never free and never counts as used.
  bool has_null_block = false;
  // Full blocks can be hashed; a free block keeps its content until it is reused.
  bool caches_prefixes = false;
  DuplicateRule duplicates = DuplicateRule::KeepAll;
  // Hashes have positions, and a block so many units of tokens; see PrefixIndex. Replaces
  // `duplicates`.
  std::optional<std::int64_t> num_units = {};
  // Freed blocks without a hash cannot be found again and are reused before all others (vLLM from
  // 0.25 on). Without prefix caching this is every block.
  bool reuses_unhashed_first = false;
  // Several tables may have the same block, so its references are counted. Otherwise each block is
  // in one table at most, and retain(), ref_count() and is_free() must not be called.
  bool shares_blocks = true;
};
constexpr BlockId kNullBlock{0};

class BlockPool {
 public:
  explicit BlockPool(const BlockPoolOptions& options);

  // Appends the `count` blocks that were free longest to `table`, each with ref_count 1. They lose
  // their content. Returns false and takes nothing when fewer are free. This is ordinary
  // back-pressure: the caller waits or preempts.
  [[nodiscard]] bool allocate(std::int64_t count, BlockTable& table) {
    if (count > num_free_) return false;
    num_free_ -= count;
    num_references_ += count;
    if (num_touched_ < num_blocks_) {
      count -= allocate_untouched(count, table);
      if (count == 0) return true;
    }
    if (contents_) {
      allocate_cached(count, table);
    } else if (count == 1) {  // a decode takes one
      allocate_next(table);
    } else {
      allocate_plain(count, table);
    }
    return true;
  }

  // Adds a reference. A free block leaves the free list and keeps its content. Not for the null
  // block or an untouched one.
  void retain(BlockId id);
  // Drops one reference of each block, last block first. So of blocks freed together, the end of a
  // sequence is reused first. Skips null blocks. Requires ref_count > 0 for each. Leaves `table`
  // empty.
  void release(BlockTable& table) { release(table, reuses_unhashed_first_); }
  // With a rule of their own in place of BlockPoolOptions::reuses_unhashed_first.
  void release(BlockTable& table, bool reuses_unhashed_first);
  // Drops one reference of one block.
  void release(BlockId id);

  // Removes a free block's content, as if it were overwritten. Requires caches_prefixes and a
  // touched block.
  void forget(BlockId id);

  // Blocks [0, num_touched()) were handed out at least once, or are the null block. Only these have
  // references and an entry in contents().
  std::int64_t num_touched() const { return num_touched_; }

  bool is_free(BlockId id) const { return ref_count(id) == 0 && !is_null(id); }
  bool is_null(BlockId id) const { return has_null_block_ && id == kNullBlock; }
  std::int32_t ref_count(BlockId id) const { return blocks_[index(id)].ref_count; }
  std::int64_t num_blocks() const { return num_blocks_; }
  std::int64_t num_usable() const { return num_blocks() - (has_null_block_ ? 1 : 0); }
  std::int64_t num_free() const { return num_free_; }
  std::int64_t num_used() const { return num_usable() - num_free_; }
  // The entries of all tables, but for null blocks.
  std::int64_t num_references() const { return shares_blocks_ ? num_references_ : num_used(); }

  // The index of block contents. Requires caches_prefixes.
  bool caches_prefixes() const { return contents_.has_value(); }
  const PrefixIndex& contents() const { return *contents_; }
  PrefixIndex& contents() { return *contents_; }

  // The free blocks in the order of reuse. Cost: O(free blocks).
  std::vector<BlockId> free_blocks() const;
  // The touched ones among them. Cost: O(touched blocks).
  std::vector<BlockId> freed_blocks() const;

  // Throws InvariantError unless the free list has exactly the blocks without a reference, each
  // once, and the references are exactly those of `tables`. Cost: O(touched blocks + table
  // entries).
  void check_integrity(const std::vector<const BlockTable*>& tables) const;

 private:
  // Of a block that is shared: eviction looks at both.
  struct Block {
    std::int32_t ref_count = 0;  // 0: free, or null
    std::uint32_t place = 0;     // of a free one: the low half of its position in the list
  };

  BlockId& entry(std::int64_t position) {
    return ring_[static_cast<std::size_t>(position) & mask_];
  }
  BlockId entry(std::int64_t position) const {
    return ring_[static_cast<std::size_t>(position) & mask_];
  }
  // With prefix caching a block can leave the middle of the list; its entry becomes stale.
  static bool is_listed_at(const Block& block, std::int64_t position) {
    return block.ref_count == 0 && block.place == static_cast<std::uint32_t>(position);
  }
  bool is_stale(std::int64_t position) const {
    return contents_ && !is_listed_at(blocks_[index(entry(position))], position);
  }
  void put(std::int64_t position, BlockId id) {
    entry(position) = id;
    if (shares_blocks_) blocks_[index(id)].place = static_cast<std::uint32_t>(position);
  }
  void allocate_next(BlockTable& table) {
    const BlockId id = entry(begin_++);
    table.push_back(id);
    if (shares_blocks_) blocks_[index(id)].ref_count = 1;
  }
  std::int64_t allocate_untouched(std::int64_t count, BlockTable& table);
  void touch(std::int64_t num_touched);
  void allocate_plain(std::int64_t count, BlockTable& table);
  void allocate_cached(std::int64_t count, BlockTable& table);
  void release_unshared(const BlockTable& table, bool at_front);
  void make_room(std::int64_t num_entries) {
    if (end_ - begin_ + num_entries > std::ssize(ring_)) [[unlikely]]
      make_room_slowly(num_entries);
  }
  void make_room_slowly(std::int64_t num_entries);
  void drop_stale();
  void append_listed(std::int64_t begin, std::int64_t end, std::vector<BlockId>& blocks) const;

  std::int64_t num_blocks_;
  std::int64_t num_touched_ = 0;
  bool has_null_block_;
  bool reuses_unhashed_first_;
  bool shares_blocks_;
  std::vector<Block> blocks_;  // [at least num_touched_]; empty: none is shared
  // The free list, oldest first: positions [begin_, end_) of a ring, which grows with them. Blocks
  // freed together are adjacent. The untouched blocks are not in the ring. They follow each other
  // by number, between the positions before untouched_ and the others.
  std::vector<BlockId> ring_;  // [a power of two]
  std::size_t mask_ = 0;
  std::int64_t begin_ = 0;
  std::int64_t untouched_ = 0;  // begin_ <= untouched_ <= end_ while there are untouched blocks
  std::int64_t end_ = 0;
  std::int64_t num_free_ = 0;
  std::int64_t num_references_ = 0;
  std::vector<BlockId> unhashed_;  // scratch of release()
  std::optional<PrefixIndex> contents_;
};

}  // namespace metronome
