#include "core/prefix_index.h"

#include <algorithm>
#include <bit>

#include "core/error.h"

namespace metronome {

PrefixIndex::PrefixIndex(std::int64_t num_blocks, DuplicateRule rule) : rule_(rule) {
  METRONOME_CHECK(num_blocks > 0 && num_blocks <= INT32_MAX, "an index is of 1 to 2^31 - 1 blocks");
  const auto count = static_cast<std::size_t>(num_blocks);
  slots_.resize(std::bit_ceil(2 * count));
  mask_ = slots_.size() - 1;
  shift_ = 64 - std::countr_zero(slots_.size());
  hashes_.assign(count, kNoHash);
  neighbours_.assign(count, {kNoBlock, kNoBlock});
}

void PrefixIndex::insert(BlockId block, BlockHash hash) {
  METRONOME_CHECK(hash != kNoHash, "a block's content has a hash");
  METRONOME_CHECK(hash_of(block) == kNoHash, "a block is hashed once");
  hashes_[index(block)] = hash;
  Slot& slot = slots_[slot_of(hash)];
  if (slot.hash == kNoHash) {
    slot = {hash, block, block};
    ++size_;
  } else if (rule_ == DuplicateRule::KeepLatest) {
    hashes_[index(slot.first)] = kNoHash;
    slot.first = block;
    slot.last = block;
  } else {
    neighbours_[index(slot.last)].next = block;
    neighbours_[index(block)].previous = slot.last;
    slot.last = block;
    ++size_;
  }
}

void PrefixIndex::erase_hashed(BlockId block) {
  const std::size_t slot = slot_of(hash_of(block));
  if (slots_[slot].first == slots_[slot].last) {
    vacate(slot);
  } else {
    unlink(block, slots_[slot]);
  }
  hashes_[index(block)] = kNoHash;
  --size_;
}

// Takes one of several blocks with the same hash out of their list.
void PrefixIndex::unlink(BlockId block, Slot& slot) {
  const Neighbours around = neighbours_[index(block)];
  if (block == slot.first) {
    slot.first = around.next;
  } else if (block == slot.last) {
    slot.last = around.previous;
  } else {
    neighbours_[index(around.previous)].next = around.next;
    neighbours_[index(around.next)].previous = around.previous;
  }
}

// Empties a slot and moves back whatever would no longer be reached from its home across the hole.
void PrefixIndex::vacate(std::size_t slot) {
  std::size_t hole = slot;
  for (std::size_t at = after(slot); slots_[at].hash != kNoHash; at = after(at)) {
    const std::size_t probes = (at - home_of(slots_[at].hash)) & mask_;
    if (probes < ((at - hole) & mask_)) continue;  // its home lies behind the hole
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
}

// Walks the blocks of one slot. Returns how many there are.
std::int64_t PrefixIndex::check_blocks_of(const Slot& slot) const {
  std::int64_t count = 0;
  for (BlockId block = slot.first;; block = neighbours_[index(block)].next) {
    METRONOME_CHECK(index(block) < hashes_.size(), "the prefix index names a block out of range");
    METRONOME_CHECK(hash_of(block) == slot.hash, "a block is listed under another one's hash");
    METRONOME_CHECK(++count <= size_, "blocks of one hash form a circle");
    if (block == slot.last) return count;
    const BlockId next = neighbours_[index(block)].next;
    METRONOME_CHECK(index(next) < hashes_.size() && neighbours_[index(next)].previous == block,
                    "neighbours of one hash disagree");
  }
}

void PrefixIndex::check_integrity() const {
  const auto num_hashed = static_cast<std::int64_t>(hashes_.size()) -
                          std::count(hashes_.begin(), hashes_.end(), kNoHash);
  METRONOME_CHECK(num_hashed == size_, "the hashed blocks differ from their count");
  std::int64_t num_listed = 0;
  for (const Slot& slot : slots_) {
    if (slot.hash == kNoHash) {
      METRONOME_CHECK(slot.first == kNoBlock, "an empty slot finds a block");
      continue;
    }
    METRONOME_CHECK(&slots_[slot_of(slot.hash)] == &slot, "a hash is not found where it is");
    METRONOME_CHECK(rule_ != DuplicateRule::KeepLatest || slot.first == slot.last,
                    "an older block of the same content is kept");
    num_listed += check_blocks_of(slot);
  }
  METRONOME_CHECK(num_listed == size_, "a hashed block is not found");
}

}  // namespace metronome
