#include "core/block_pool.h"

#include <algorithm>

#include "core/error.h"

namespace metronome {

BlockPool::BlockPool(const BlockPoolOptions& options)
    : has_null_block_(options.has_null_block),
      reuses_unhashed_first_(options.caches_prefixes && options.reuses_unhashed_first) {
  const std::int64_t num_blocks = options.num_blocks;
  METRONOME_CHECK(num_blocks > 0 && num_blocks < INT32_MAX, "a pool has 1 to 2^31 - 2 blocks");
  ref_counts_.assign(static_cast<std::size_t>(num_blocks), 0);
  links_.resize(static_cast<std::size_t>(num_blocks) + 1);
  const auto end = static_cast<std::int32_t>(num_blocks);
  links_.back() = {end, end};
  for (std::int32_t block = has_null_block_ ? 1 : 0; block < end; ++block) {
    link_before(end, BlockId{block});
  }
  num_free_ = num_usable();
  if (options.caches_prefixes) contents_.emplace(num_blocks, options.duplicates);
}

// Before `position`, a block in the list or its end.
void BlockPool::link_before(std::int32_t position, BlockId id) {
  const auto block = static_cast<std::int32_t>(id);
  Link& after = links_[static_cast<std::size_t>(position)];
  links_[index(id)] = {after.previous, position};
  links_[static_cast<std::size_t>(after.previous)].next = block;
  after.previous = block;
}

void BlockPool::unlink(BlockId id) {
  const Link link = links_[index(id)];
  links_[static_cast<std::size_t>(link.previous)].next = link.next;
  links_[static_cast<std::size_t>(link.next)].previous = link.previous;
}

bool BlockPool::allocate(std::int64_t count, BlockTable& table) {
  if (count > num_free_) return false;
  num_free_ -= count;
  Link& ends = links_.back();
  if (contents_) forget_next(count);
  std::int32_t block = ends.next;
  for (std::int64_t i = 0; i < count; ++i) {
    const BlockId id{block};
    ref_counts_[index(id)] = 1;
    table.push_back(id);
    block = links_[index(id)].next;
  }
  ends.next = block;
  links_[static_cast<std::size_t>(block)].previous = static_cast<std::int32_t>(num_blocks());
  return true;
}

// The next `count` free blocks lose what they hold. A hash's place in the index is a random one, so
// those of the blocks to come are fetched ahead.
void BlockPool::forget_next(std::int64_t count) {
  constexpr std::int64_t kAhead = 8;
  const auto after = [this](std::int32_t block) {
    return links_[static_cast<std::size_t>(block)].next;
  };
  std::int32_t ahead = links_.back().next;
  std::int32_t block = ahead;
  for (std::int64_t i = -kAhead; i < count; ++i) {
    if (i + kAhead < count) {
      contents_->prefetch(contents_->hash_of(BlockId{ahead}));
      ahead = after(ahead);
    }
    if (i < 0) continue;
    contents_->erase(BlockId{block});
    block = after(block);
  }
}

void BlockPool::retain(BlockId id) {
  METRONOME_CHECK(!is_null(id), "the null block has no references");
  if (ref_counts_[index(id)]++ > 0) return;
  unlink(id);
  --num_free_;
}

void BlockPool::release(BlockTable& table) {
  const auto end = static_cast<std::int32_t>(num_blocks());
  // Blocks put at the front keep the order in which they are freed.
  std::int32_t front = links_.back().next;
  for (auto it = table.rbegin(); it != table.rend(); ++it) {
    if (is_null(*it)) continue;
    const std::int32_t num_left = --ref_counts_[index(*it)];
    METRONOME_CHECK(num_left >= 0, "release of a free block");
    if (num_left > 0) continue;
    const bool goes_first = reuses_unhashed_first_ && contents_->hash_of(*it) == kNoHash;
    link_before(goes_first ? front : end, *it);
    if (front == end && !goes_first) front = static_cast<std::int32_t>(*it);
    ++num_free_;
  }
  table.clear();
}

void BlockPool::release(BlockId id) {
  BlockTable table{id};
  release(table);
}

std::vector<BlockId> BlockPool::free_blocks() const {
  std::vector<BlockId> blocks;
  for (std::int32_t i = links_.back().next; i != num_blocks();
       i = links_[static_cast<std::size_t>(i)].next) {
    blocks.push_back(BlockId{i});
    METRONOME_CHECK(static_cast<std::int64_t>(blocks.size()) <= num_free_, "the free list is long");
  }
  return blocks;
}

void BlockPool::check_integrity(const std::vector<const BlockTable*>& tables) const {
  std::vector<std::int32_t> references(ref_counts_.size(), 0);
  for (const BlockTable* table : tables) {
    for (const BlockId id : *table) {
      METRONOME_CHECK(index(id) < references.size(), "a block table names a block out of range");
      if (!is_null(id)) ++references[index(id)];
    }
  }
  METRONOME_CHECK(references == ref_counts_, "reference counts differ from the block tables");
  std::vector<bool> is_listed(ref_counts_.size(), false);
  for (const BlockId id : free_blocks()) {
    METRONOME_CHECK(is_free(id), "a used block is listed free");
    METRONOME_CHECK(!is_listed[index(id)], "a block is listed free twice");
    is_listed[index(id)] = true;
  }
  const auto num_listed = std::count(is_listed.begin(), is_listed.end(), true);
  const auto num_unreferenced = std::count(ref_counts_.begin(), ref_counts_.end(), 0);
  METRONOME_CHECK(num_listed == num_free_, "the free list differs from its count");
  METRONOME_CHECK(num_unreferenced - (has_null_block_ ? 1 : 0) == num_free_,
                  "free + referenced blocks != total");
  if (contents_) contents_->check_integrity();
}

}  // namespace metronome
