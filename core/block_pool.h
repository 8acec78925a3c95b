// A fixed set of equal-sized KV blocks, shared by reference count. Block ids are the only KV fact
// that scheduler and executors share; the memory belongs to the executor.
#pragma once

#include <cstdint>
#include <vector>

#include "core/request.h"
#include "core/types.h"

namespace metronome {

class BlockPool {
 public:
  explicit BlockPool(std::int64_t num_blocks);  // requires num_blocks > 0

  // Appends the `count` blocks free for longest to `table`, each with ref_count 1. Returns false
  // and takes nothing when fewer are free: ordinary back-pressure, so the caller waits or preempts.
  [[nodiscard]] bool allocate(std::int64_t count, BlockTable& table);

  void retain(BlockId id);  // requires ref_count(id) > 0
  // Drops one reference of each block, last block first, so that of blocks freed together the
  // tail of a sequence is reused first. Requires ref_count > 0 for each. Leaves `table` empty.
  void release(BlockTable& table);

  std::int32_t ref_count(BlockId id) const { return ref_counts_[index(id)]; }
  std::int64_t num_blocks() const { return static_cast<std::int64_t>(ref_counts_.size()); }
  std::int64_t num_free() const { return num_free_; }
  std::int64_t num_used() const { return num_blocks() - num_free_; }

  // Throws InvariantError unless the free list holds exactly the blocks without a reference, each
  // once, and the references are exactly those of `tables`. Cost: O(blocks + table entries).
  void check_integrity(const std::vector<const BlockTable*>& tables) const;

 private:
  std::vector<std::int32_t> ref_counts_;  // [num_blocks], 0 = free
  // A ring of the free blocks, oldest first: num_free_ of them from free_begin_ on.
  std::vector<BlockId> free_ring_;  // [num_blocks]
  std::int64_t free_begin_ = 0;
  std::int64_t num_free_ = 0;
};

}  // namespace metronome
