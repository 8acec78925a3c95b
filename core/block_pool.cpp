#include "core/block_pool.h"

#include <algorithm>

#include "core/error.h"

namespace metronome {

BlockPool::BlockPool(std::int64_t num_blocks) : num_free_(num_blocks) {
  METRONOME_CHECK(num_blocks > 0 && num_blocks < INT32_MAX, "a pool has 1 to 2^31 - 2 blocks");
  ref_counts_.assign(static_cast<std::size_t>(num_blocks), 0);
  free_ring_.reserve(static_cast<std::size_t>(num_blocks));
  for (std::int32_t block = 0; block < num_blocks; ++block) free_ring_.push_back(BlockId{block});
}

bool BlockPool::allocate(std::int64_t count, BlockTable& table) {
  if (count > num_free_) return false;
  num_free_ -= count;
  while (count > 0) {  // in one piece, or in two around the end of the ring
    const std::int64_t num_taken = std::min(count, num_blocks() - free_begin_);
    const BlockId* const taken = free_ring_.data() + free_begin_;
    if (num_taken == 1) {
      table.push_back(*taken);
    } else {
      table.insert(table.end(), taken, taken + num_taken);
    }
    for (std::int64_t i = 0; i < num_taken; ++i) ref_counts_[index(taken[i])] = 1;
    free_begin_ += num_taken;
    if (free_begin_ == num_blocks()) free_begin_ = 0;
    count -= num_taken;
  }
  return true;
}

void BlockPool::retain(BlockId id) {
  METRONOME_CHECK(ref_count(id) > 0, "retain of a free block");
  ++ref_counts_[index(id)];
}

void BlockPool::release(BlockTable& table) {
  std::int32_t* const references = ref_counts_.data();
  BlockId* const ring = free_ring_.data();
  const std::int64_t ring_size = num_blocks();
  std::int64_t end = free_begin_ + num_free_;
  if (end >= ring_size) end -= ring_size;
  for (auto it = table.rbegin(); it != table.rend(); ++it) {
    const std::int32_t num_left = --references[index(*it)];
    METRONOME_CHECK(num_left >= 0, "release of a free block");
    if (num_left > 0) continue;
    ring[end] = *it;
    if (++end == ring_size) end = 0;
    ++num_free_;
  }
  table.clear();
}

void BlockPool::check_integrity(const std::vector<const BlockTable*>& tables) const {
  std::vector<std::int32_t> references(ref_counts_.size(), 0);
  for (const BlockTable* table : tables) {
    for (const BlockId id : *table) {
      METRONOME_CHECK(index(id) < references.size(), "a block table names a block out of range");
      ++references[index(id)];
    }
  }
  METRONOME_CHECK(references == ref_counts_, "reference counts differ from the block tables");
  std::vector<bool> is_listed(ref_counts_.size(), false);
  for (std::int64_t i = 0; i < num_free_; ++i) {
    const BlockId id = free_ring_[static_cast<std::size_t>((free_begin_ + i) % num_blocks())];
    METRONOME_CHECK(ref_count(id) == 0, "a used block is listed free");
    METRONOME_CHECK(!is_listed[index(id)], "a block is listed free twice");
    is_listed[index(id)] = true;
  }
  const auto num_unreferenced = std::count(ref_counts_.begin(), ref_counts_.end(), 0);
  METRONOME_CHECK(num_unreferenced == num_free_, "free + referenced blocks != total");
}

}  // namespace metronome
