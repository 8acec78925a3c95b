// SPDX-License-Identifier: Apache-2.0
#include "core/engine/kv/block_pool.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace metronome {

namespace {

constexpr std::int64_t kAhead = 32;       // blocks that are prefetched
constexpr std::int64_t kFirstBlocks = 4;  // for so many the pool has room from the start

}  // namespace

BlockPool::BlockPool(const BlockPoolOptions& options)
    : num_blocks_(options.num_blocks),
      has_null_block_(options.has_null_block),
      reuses_unhashed_first_(options.reuses_unhashed_first),
      shares_blocks_(options.shares_blocks),
      ring_(1) {
  const std::int64_t num_blocks = options.num_blocks;
  METRONOME_CHECK(num_blocks > 0 && num_blocks < INT32_MAX, "a pool has 1 to 2^31 - 2 blocks");
  METRONOME_CHECK(options.shares_blocks || !options.caches_prefixes, "cached blocks are shared");
  if (options.caches_prefixes) {
    METRONOME_CHECK(num_blocks <= INT32_MAX / options.num_units.value_or(1),
                    "an index has 1 to 2^31 - 1 entries");
    const std::int64_t num_first = std::min(num_blocks, kFirstBlocks);
    if (options.num_units) {
      contents_.emplace(num_first, *options.num_units);
    } else {
      contents_.emplace(num_first, options.duplicates);
    }
  }
  if (has_null_block_) touch(1);
  num_free_ = num_usable();
}

// Makes blocks [0, num_touched) known. Room for them at least doubles.
void BlockPool::touch(std::int64_t num_touched) {
  num_touched_ = num_touched;
  if (!shares_blocks_ || num_touched <= std::ssize(blocks_)) return;
  const std::int64_t doubled = 2 * std::ssize(blocks_);
  const std::int64_t room = std::min(num_blocks_, std::max({num_touched, kFirstBlocks, doubled}));
  blocks_.resize(static_cast<std::size_t>(room));
  if (contents_) contents_->grow_to(room);
}

// Takes blocks from the begin of the list up to the last untouched block. Returns their number.
std::int64_t BlockPool::allocate_untouched(std::int64_t count, BlockTable& table) {
  const std::size_t num_before = table.size();
  const auto num_left = [&] {
    return count - static_cast<std::int64_t>(table.size() - num_before);
  };
  if (!contents_) allocate_plain(std::min(count, untouched_ - begin_), table);
  for (; begin_ < untouched_ && num_left() > 0; ++begin_) {
    if (is_stale(begin_)) continue;
    const BlockId id = entry(begin_);
    contents_->erase(id);
    blocks_[index(id)].ref_count = 1;
    table.push_back(id);
  }
  const std::int64_t first = num_touched_;
  touch(first + std::min(num_left(), num_blocks_ - first));
  for (std::int64_t i = first; i < num_touched_; ++i) {
    table.push_back(BlockId(static_cast<std::int32_t>(i)));
    if (shares_blocks_) blocks_[static_cast<std::size_t>(i)].ref_count = 1;
  }
  return count - num_left();
}

void BlockPool::allocate_plain(std::int64_t count, BlockTable& table) {
  while (count > 0) {  // one range, or two around the end of the ring
    const std::size_t first = static_cast<std::size_t>(begin_) & mask_;
    const auto num_taken = std::min(count, static_cast<std::int64_t>(ring_.size() - first));
    const BlockId* const taken = ring_.data() + first;
    table.insert(table.end(), taken, taken + num_taken);
    if (shares_blocks_) {
      for (std::int64_t i = 0; i < num_taken; ++i) blocks_[index(taken[i])].ref_count = 1;
    }
    begin_ += num_taken;
    count -= num_taken;
  }
}

// Each block's data and its hash's slot in the index are random accesses, so the loop prefetches
// those of later blocks.
void BlockPool::allocate_cached(std::int64_t count, BlockTable& table) {
  PrefixIndex& contents = *contents_;
  const BlockId* const ring = ring_.data();
  Block* const blocks = blocks_.data();
  const std::size_t mask = mask_;
  const std::int64_t last = end_;
  const auto id_at = [=](std::int64_t at) { return ring[static_cast<std::size_t>(at) & mask]; };
  const auto fetch = [&](std::int64_t at) __attribute__((always_inline)) {
    if (at + kAhead < last) {
      const BlockId later = id_at(at + kAhead);
      contents.prefetch(later);
      __builtin_prefetch(blocks + index(later), 1);
    }
    if (at < last) contents.prefetch(contents.hash_of(id_at(at)));
  };
  std::int64_t position = begin_;
  for (std::int64_t i = 0; i < std::min(count, kAhead); ++i) fetch(position + i);
  const std::size_t num_before = table.size();
  table.resize(num_before + static_cast<std::size_t>(count));
  BlockId* next = table.data() + num_before;
  for (BlockId* const end = table.data() + table.size(); next != end; ++position) {
    if (end - next > kAhead) fetch(position + kAhead);
    const BlockId id = id_at(position);
    Block& block = blocks[index(id)];
    if (!is_listed_at(block, position)) continue;  // stale
    contents.erase(id);
    block.ref_count = 1;
    *next++ = id;
  }
  begin_ = position;
}

void BlockPool::retain(BlockId id) {
  METRONOME_CHECK(!is_null(id), "the null block has no references");
  METRONOME_CHECK(static_cast<std::int64_t>(id) < num_touched_,
                  "an untouched block has no content to come back to");
  ++num_references_;
  if (blocks_[index(id)].ref_count++ > 0) return;
  METRONOME_CHECK(contents_, "only prefix caching brings a free block back");
  --num_free_;
}

// With prefix caching, half of the ring is left for stale entries, so that they are rarely dropped.
void BlockPool::make_room_slowly(std::int64_t num_entries) {
  const std::int64_t num_listed = num_free_ - (num_blocks_ - num_touched_) + num_entries;
  const auto size =
      std::bit_ceil(static_cast<std::size_t>(contents_ ? 2 * num_listed : num_listed));
  if (size <= ring_.size()) return drop_stale();
  std::vector<BlockId> ring(size);
  const std::size_t mask = size - 1;
  for (std::int64_t position = begin_; position < end_; ++position) {
    ring[static_cast<std::size_t>(position) & mask] = entry(position);
  }
  ring_ = std::move(ring);
  mask_ = mask;
}

void BlockPool::drop_stale() {
  std::int64_t kept = begin_;
  const std::int64_t untouched = untouched_;
  for (std::int64_t position = begin_; position < end_; ++position) {
    if (position == untouched) untouched_ = kept;
    if (!is_stale(position)) put(kept++, entry(position));
  }
  if (end_ == untouched) untouched_ = kept;
  end_ = kept;
}

// Frees the blocks of a table that no other table has: at the front of the free list or at its end.
void BlockPool::release_unshared(const BlockTable& table, bool at_front) {
  auto num_freed = static_cast<std::int64_t>(table.size());
  make_room(num_freed);
  const std::int64_t place = at_front ? begin_ - num_freed : end_;
  const std::size_t first = static_cast<std::size_t>(place) & mask_;
  if (!has_null_block_ && first + table.size() <= ring_.size()) {
    std::reverse_copy(table.begin(), table.end(), ring_.data() + first);
    (at_front ? begin_ : end_) += at_front ? -num_freed : num_freed;
  } else {
    num_freed = 0;
    const auto free = [&](BlockId id) {
      if (is_null(id)) return;
      put(at_front ? --begin_ : end_++, id);
      ++num_freed;
    };
    if (at_front) {
      std::for_each(table.begin(), table.end(), free);
    } else {
      std::for_each(table.rbegin(), table.rend(), free);
    }
  }
  num_free_ += num_freed;
  METRONOME_CHECK(num_free_ <= num_usable(), "release of a free block");
}

void BlockPool::release(BlockTable& table, bool reuses_unhashed_first) {
  if (!shares_blocks_) {
    release_unshared(table, reuses_unhashed_first);
    return table.clear();
  }
  make_room(std::ssize(table));
  unhashed_.clear();
  // Copies of members stay in registers, whatever the loop writes.
  Block* const blocks = blocks_.data();
  BlockId* const ring = ring_.data();
  const PrefixIndex* const contents = contents_ ? &*contents_ : nullptr;
  const std::size_t mask = mask_;
  std::int64_t end = end_;
  std::int64_t num_dropped = 0;
  for (auto it = table.rbegin(); it != table.rend(); ++it) {
    if (table.rend() - it > kAhead) {
      __builtin_prefetch(blocks + index(it[kAhead]), 1);
      if (contents != nullptr && reuses_unhashed_first) contents->prefetch(it[kAhead]);
    }
    const BlockId id = *it;
    if (is_null(id)) continue;
    Block& block = blocks[index(id)];
    ++num_dropped;
    const std::int32_t num_left = --block.ref_count;
    METRONOME_CHECK(num_left >= 0, "release of a free block");
    if (num_left > 0) continue;
    if (reuses_unhashed_first && (contents == nullptr || contents->hash_of(id) == kNoHash)) {
      unhashed_.push_back(id);
      continue;
    }
    ring[static_cast<std::size_t>(end) & mask] = id;
    block.place = static_cast<std::uint32_t>(end);
    ++end;
  }
  num_references_ -= num_dropped;
  num_free_ += end - end_ + std::ssize(unhashed_);
  end_ = end;
  // At the front they keep the order in which they were freed.
  for (auto it = unhashed_.rbegin(); it != unhashed_.rend(); ++it) put(--begin_, *it);
  table.clear();
}

void BlockPool::release(BlockId id) {
  BlockTable table{id};
  release(table);
}

void BlockPool::forget(BlockId id) {
  METRONOME_CHECK(is_free(id), "only free blocks are forgotten");
  contents_->erase(id);
  if (!reuses_unhashed_first_) return;
  retain(id);  // moves it to the unhashed blocks
  release(id);
}

void BlockPool::append_listed(std::int64_t begin, std::int64_t end,
                              std::vector<BlockId>& blocks) const {
  for (std::int64_t position = begin; position < end; ++position) {
    if (!is_stale(position)) blocks.push_back(entry(position));
  }
}

std::vector<BlockId> BlockPool::free_blocks() const {
  std::vector<BlockId> blocks;
  blocks.reserve(static_cast<std::size_t>(num_free_));
  const std::int64_t middle = num_touched_ < num_blocks_ ? untouched_ : end_;
  append_listed(begin_, middle, blocks);
  for (std::int64_t i = num_touched_; i < num_blocks_; ++i) {
    blocks.push_back(BlockId(static_cast<std::int32_t>(i)));
  }
  append_listed(middle, end_, blocks);
  return blocks;
}

std::vector<BlockId> BlockPool::freed_blocks() const {
  std::vector<BlockId> blocks;
  append_listed(begin_, end_, blocks);
  return blocks;
}

void BlockPool::check_integrity(const std::vector<const BlockTable*>& tables) const {
  std::vector<std::int32_t> references(static_cast<std::size_t>(num_touched_), 0);
  for (const BlockTable* table : tables) {
    for (const BlockId id : *table) {
      METRONOME_CHECK(index(id) < references.size(), "a block table names a block out of range");
      if (!is_null(id)) ++references[index(id)];
    }
  }
  METRONOME_CHECK(num_references() ==
                      std::accumulate(references.begin(), references.end(), std::int64_t{0}),
                  "references are miscounted");
  if (!shares_blocks_) {
    const auto has_one = [](std::int32_t count) { return count <= 1; };
    METRONOME_CHECK(std::all_of(references.begin(), references.end(), has_one),
                    "two tables have a block that is not shared");
  } else {
    METRONOME_CHECK(
        std::equal(references.begin(), references.end(), blocks_.begin(),
                   [](std::int32_t count, const Block& block) { return count == block.ref_count; }),
        "reference counts differ from the block tables");
  }
  constexpr std::int32_t kListed = -1;
  std::int64_t num_listed = 0;
  for (const BlockId id : freed_blocks()) {
    METRONOME_CHECK(index(id) < references.size(), "an untouched block is listed free");
    std::int32_t& count = references[index(id)];
    METRONOME_CHECK(count != kListed, "a block is listed free twice");
    METRONOME_CHECK(count == 0 && !is_null(id), "a used block is listed free");
    count = kListed;
    ++num_listed;
  }
  METRONOME_CHECK(num_listed + num_blocks_ - num_touched_ == num_free_,
                  "the free list differs from its count");
  METRONOME_CHECK(std::count(references.begin(), references.end(), 0) == (has_null_block_ ? 1 : 0),
                  "a block without references is not listed free");
  METRONOME_CHECK(num_touched_ == num_blocks_ || (begin_ <= untouched_ && untouched_ <= end_),
                  "untouched blocks have a place in the free list");
  if (contents_) contents_->check_integrity();
}

}  // namespace metronome
