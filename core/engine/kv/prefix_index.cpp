#include "core/engine/kv/prefix_index.h"

#include <algorithm>
#include <bit>

#include "core/base/error.h"

namespace metronome {

PrefixIndex::PrefixIndex(std::int64_t num_blocks, DuplicateRule rule) : rule_(rule) {
  METRONOME_CHECK(num_blocks > 0 && num_blocks <= INT32_MAX, "an index has 1 to 2^31 - 1 blocks");
  const auto count = static_cast<std::size_t>(num_blocks);
  const std::size_t num_slots = rule == DuplicateRule::Unlisted ? kSlots : 2 * count;
  buckets_.resize(std::bit_ceil((num_slots + kSlots - 1) / kSlots));
  overflows_.resize(buckets_.size());
  mask_ = buckets_.size() - 1;
  shift_ = std::min(63, 64 - std::countr_zero(buckets_.size()));
  hashes_.assign(count, kNoHash);
  neighbours_.assign(count, {kNoBlock, kNoBlock});
}

void PrefixIndex::insert(BlockId block, BlockHash hash) {
  METRONOME_CHECK(hash != kNoHash, "a block's content has a hash");
  METRONOME_CHECK(hash_of(block) == kNoHash, "a block is hashed once");
  hashes_[index(block)] = hash;
  if (rule_ == DuplicateRule::Unlisted) {
    ++size_;
    return;
  }
  Slot* const slot = locate(hash);
  if (slot == nullptr) {
    occupy(hash, block);
    ++size_;
  } else if (rule_ == DuplicateRule::KeepLatest) {
    hashes_[index(slot->first)] = kNoHash;
    slot->first = block;
    slot->last = block;
  } else {
    neighbours_[index(slot->last)].next = block;
    neighbours_[index(block)].previous = slot->last;
    slot->last = block;
    ++size_;
  }
}

// Adds the hash to the first bucket with room, from its home bucket on.
void PrefixIndex::occupy(BlockHash hash, BlockId block) {
  const std::size_t home = home_of(hash);
  std::size_t distance = 0;
  unsigned empty = matches(buckets_[home], kNoHash);
  while (empty == 0) {
    ++distance;
    empty = matches(buckets_[(home + distance) & mask_], kNoHash);
  }
  Bucket& bucket = buckets_[(home + distance) & mask_];
  bucket.slots[static_cast<std::size_t>(std::countr_zero(empty))] = {hash, block, block};
  if (distance == 0) return;
  Overflow& overflow = overflows_[home];
  METRONOME_CHECK(distance <= UINT16_MAX && overflow.num_away < UINT16_MAX, "hashes are mixed");
  ++overflow.num_away;
  overflow.reach = std::max(overflow.reach, static_cast<std::uint16_t>(distance));
}

std::size_t PrefixIndex::bucket_of(const Slot& slot) const {
  const auto offset =
      reinterpret_cast<const char*>(&slot) - reinterpret_cast<const char*>(buckets_.data());
  return static_cast<std::size_t>(offset) / sizeof(Bucket);
}

void PrefixIndex::vacate(Slot& slot) {
  const std::size_t home = home_of(slot.hash);
  const bool is_away = bucket_of(slot) != home;
  slot = {};
  if (is_away && --overflows_[home].num_away == 0) overflows_[home].reach = 0;
}

void PrefixIndex::erase_hashed(BlockId block) {
  if (rule_ != DuplicateRule::Unlisted) {
    Slot* const slot = locate(hash_of(block));
    METRONOME_CHECK(slot != nullptr, "a hashed block is found through its hash");
    if (slot->first == slot->last) {
      vacate(*slot);
    } else {
      unlink(block, *slot);
    }
  }
  hashes_[index(block)] = kNoHash;
  --size_;
}

// Removes one of several blocks with the same hash from their list.
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

// Checks the blocks of one slot. Returns their number.
std::int64_t PrefixIndex::check_blocks_of(const Slot& slot) const {
  std::int64_t count = 0;
  for (BlockId block = slot.first;; block = neighbours_[index(block)].next) {
    METRONOME_CHECK(index(block) < hashes_.size(), "the prefix index names a block out of range");
    METRONOME_CHECK(hash_of(block) == slot.hash, "a block is listed under another one's hash");
    METRONOME_CHECK(++count <= size_, "blocks of one hash form a cycle");
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
  if (rule_ == DuplicateRule::Unlisted) return;
  std::int64_t num_listed = 0;
  std::vector<std::uint16_t> num_away(buckets_.size(), 0);
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) {
      if (slot.hash == kNoHash) {
        METRONOME_CHECK(slot.first == kNoBlock, "an empty slot finds a block");
        continue;
      }
      METRONOME_CHECK(locate(slot.hash) == &slot, "a hash is not found where it is");
      METRONOME_CHECK(rule_ != DuplicateRule::KeepLatest || slot.first == slot.last,
                      "an older block of the same content is kept");
      const std::size_t home = home_of(slot.hash);
      if (bucket_of(slot) != home) ++num_away[home];
      num_listed += check_blocks_of(slot);
    }
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    METRONOME_CHECK(num_away[i] == overflows_[i].num_away, "hashes away from home are miscounted");
  }
  METRONOME_CHECK(num_listed == size_, "a hashed block is not found");
}

}  // namespace metronome
