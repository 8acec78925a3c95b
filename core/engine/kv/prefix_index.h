// Maps the chained hash of a full block to the KV blocks with that content. Part of BlockPool; at
// most one entry per block.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/types.h"

namespace metronome {

// Identifies a full block's tokens and everything before them. With 64 bits, n different prefixes
// have a false match with probability n^2 / 2^65: one in a million for six million.
enum class BlockHash : std::uint64_t {};
constexpr BlockHash kNoHash{0};  // not hashed; no content hashes to it

// The rule for a second block with the same content.
enum class DuplicateRule : std::uint8_t {
  KeepAll,     // both stay; a lookup finds the one hashed first (vLLM)
  KeepLatest,  // the older one is forgotten (nano-vllm)
  Unlisted,    // no block is found by its content, but it keeps its hash (llama.cpp)
};

class PrefixIndex {
 public:
  // For blocks [0, num_blocks), 0 < num_blocks < 2^31. Never allocates afterwards.
  PrefixIndex(std::int64_t num_blocks, DuplicateRule rule);

  // Requires hash != kNoHash and a block without a hash. Under KeepLatest the earlier block with
  // this content loses its hash; KeepAll keeps every block.
  void insert(BlockId block, BlockHash hash);
  // Forgets the block's content; nothing happens when it has no hash.
  void erase(BlockId block) {
    if (hash_of(block) != kNoHash) erase_hashed(block);
  }

  // The block hashed first (KeepLatest: last) among those with this content; kNoBlock when none.
  BlockId find(BlockHash hash) const {
    const Slot* slot = locate(hash);
    return slot == nullptr ? kNoBlock : slot->first;
  }
  // Loads a hash's bucket into the CPU cache, for a find, insert or erase soon after.
  void prefetch(BlockHash hash) const { __builtin_prefetch(&buckets_[home_of(hash)], 1); }
  BlockHash hash_of(BlockId block) const { return hashes_[index(block)]; }
  std::int64_t size() const { return size_; }  // hashed blocks

  // Throws InvariantError unless exactly the hashed blocks are found through their hashes. Cost:
  // O(blocks).
  void check_integrity() const;

 private:
  struct Slot {  // empty: hash == kNoHash and no blocks
    BlockHash hash = kNoHash;
    BlockId first = kNoBlock;
    BlockId last = kNoBlock;
  };
  // One cache line. A hash is in its home bucket, or in a later one if that was full. Then the
  // home's `num_away` counts it, and `reach` is an upper bound of the distance.
  static constexpr std::size_t kSlots = 4;
  struct alignas(64) Bucket {
    std::array<Slot, kSlots> slots;
  };
  struct Overflow {
    std::uint16_t num_away = 0;
    std::uint16_t reach = 0;
  };
  struct Neighbours {  // blocks of the same hash, in order of insertion
    BlockId previous;  // not set for the first
    BlockId next;      // not set for the last
  };

  // Hashes are well mixed. Uses the high bits, because a caller may have forced a low one.
  std::size_t home_of(BlockHash hash) const {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(hash) >> shift_) & mask_;
  }
  // Bit i: slot i of the bucket holds `hash`. Branch-free, because the slot is unpredictable.
  static unsigned matches(const Bucket& bucket, BlockHash hash) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < kSlots; ++i) {
      bits |= static_cast<unsigned>(bucket.slots[i].hash == hash) << i;
    }
    return bits;
  }
  const Slot* locate(BlockHash hash) const {
    const std::size_t home = home_of(hash);
    for (std::size_t distance = 0;; ++distance) {
      const Bucket& bucket = buckets_[(home + distance) & mask_];
      if (const unsigned bits = matches(bucket, hash)) {
        return &bucket.slots[static_cast<std::size_t>(std::countr_zero(bits))];
      }
      if (distance >= overflows_[home].reach) return nullptr;
    }
  }
  Slot* locate(BlockHash hash) {
    return const_cast<Slot*>(static_cast<const PrefixIndex*>(this)->locate(hash));
  }
  void erase_hashed(BlockId block);
  void occupy(BlockHash hash, BlockId block);
  void vacate(Slot& slot);
  void unlink(BlockId block, Slot& slot);
  std::size_t bucket_of(const Slot& slot) const;
  std::int64_t check_blocks_of(const Slot& slot) const;

  DuplicateRule rule_;
  std::vector<Bucket> buckets_;  // a power of two, at most half full
  std::vector<Overflow> overflows_;
  std::size_t mask_;
  int shift_;
  std::vector<BlockHash> hashes_;       // [num_blocks]
  std::vector<Neighbours> neighbours_;  // [num_blocks]
  std::int64_t size_ = 0;
};

}  // namespace metronome
