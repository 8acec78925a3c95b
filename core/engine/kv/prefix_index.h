// Maps the chained hash of a full block to the KV blocks with that content. Part of BlockPool. A
// block has one hash; where prefixes may end inside a block (vLLM's prefix_match_unit), it may have
// one for each end.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/error.h"
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
  PrefixIndex(std::int64_t num_blocks, DuplicateRule rule)
      : PrefixIndex(num_blocks, rule, 1, false) {}
  // Prefixes end at multiples of a unit of tokens, of which a block has `num_units`. A block may
  // have a hash for each of these positions.
  PrefixIndex(std::int64_t num_blocks, std::int64_t num_units)
      : PrefixIndex(num_blocks, DuplicateRule::KeepAll, num_units, true) {}

  // Requires hash != kNoHash and a block without a hash. Under KeepLatest the earlier block with
  // this content loses its hash; KeepAll keeps every block.
  void insert(BlockId block, BlockHash hash) {
    METRONOME_CHECK(primaries_.empty(), "a hash needs its position");
    insert_entry(block, hash);
  }
  // With positions: the hash of the first `position` units, > 0. Nothing happens if the block has
  // it. Requires that it has no other hash at a position that ends at the same unit of a block. The
  // first one inserted is the block's primary hash.
  void insert(BlockId block, BlockHash hash, std::int64_t position);
  // The same for a prefix that ends inside the block. If the primary hash is of an earlier
  // position, the block loses its hashes before (vLLM's BlockPool.cache_partial_block).
  void insert_inside(BlockId block, BlockHash hash, std::int64_t position) {
    if (!has(block, hash, position) && position_of(block) < position) erase(block);
    insert(block, hash, position);
  }
  // Forgets the block's content; nothing happens when it has no hash.
  void erase(BlockId block) {
    if (hash_of(block) == kNoHash) return;
    if (primaries_.empty()) {
      erase_entry(block);
    } else {
      erase_positions(block);
    }
  }
  // Gives the hashes of one block to another one that has none. Requires positions.
  void move(BlockId from, BlockId to);

  // The block hashed first (KeepLatest: last) among those with this content; kNoBlock when none.
  BlockId find(BlockHash hash) const {
    const Slot* slot = locate(hash);
    return slot == nullptr ? kNoBlock : block_of(slot->first);
  }
  // Loads a hash's bucket into the CPU cache, for a find, insert or erase soon after.
  void prefetch(BlockHash hash) const { __builtin_prefetch(&buckets_[home_of(hash)], 1); }
  // The primary hash.
  BlockHash hash_of(BlockId block) const {
    return primaries_.empty() ? hashes_[index(block)] : primaries_[index(block)].hash;
  }
  // With positions: that of the primary hash; 0 without a hash.
  std::int64_t position_of(BlockId block) const { return primaries_.at(index(block)).position; }
  // With positions: whether the block has this hash.
  bool has(BlockId block, BlockHash hash, std::int64_t position) const {
    return hashes_[index(entry_of(block, position))] == hash;
  }
  std::int64_t size() const { return size_; }  // hashes of blocks

  // Throws InvariantError unless exactly the hashed blocks are found through their hashes. Cost:
  // O(blocks).
  void check_integrity() const;

 private:
  // An entry is a hash of a block. Entries [0, num_blocks) are the blocks; with positions, the next
  // num_blocks are for positions one unit further, and so on.
  using Entry = BlockId;
  struct Primary {
    BlockHash hash = kNoHash;
    std::int64_t position = 0;
  };
  struct Slot {  // empty: hash == kNoHash and no blocks
    BlockHash hash = kNoHash;
    Entry first = kNoBlock;
    Entry last = kNoBlock;
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
  struct Neighbours {  // entries of the same hash, in order of insertion
    Entry previous;    // not set for the first
    Entry next;        // not set for the last
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
  BlockId block_of(Entry entry) const {
    return num_units_ == 1 ? entry : BlockId(static_cast<std::int32_t>(index(entry) % num_blocks_));
  }
  Entry entry_of(BlockId block, std::int64_t position) const {
    const auto unit = static_cast<std::size_t>((position - 1) % num_units_);
    return BlockId(static_cast<std::int32_t>(index(block) + unit * num_blocks_));
  }
  PrefixIndex(std::int64_t num_blocks, DuplicateRule rule, std::int64_t num_units,
              bool has_positions);
  void insert_entry(Entry entry, BlockHash hash);
  void erase_positions(BlockId block);
  void erase_entry(Entry entry);
  std::uint32_t find_room(std::size_t home);
  void vacate(std::uint32_t place);
  void unlink(Entry entry, Slot& slot);
  Slot& slot_at(std::uint32_t place) { return buckets_[place / kSlots].slots[place % kSlots]; }
  std::uint32_t place_of(const Slot& slot) const;
  std::int64_t check_entries_of(const Slot& slot) const;
  void check_primaries() const;

  DuplicateRule rule_;
  std::size_t num_blocks_;
  std::int64_t num_units_;
  std::vector<Bucket> buckets_;  // a power of two, at most half full
  std::vector<Overflow> overflows_;
  std::size_t mask_;
  int shift_;
  std::vector<BlockHash> hashes_;       // [num_blocks * num_units], by entry
  std::vector<std::uint32_t> places_;   // [num_blocks * num_units]: the slot of a hashed entry
  std::vector<Neighbours> neighbours_;  // [num_blocks * num_units]
  std::vector<Primary> primaries_;      // [num_blocks] with positions, else empty
  std::int64_t size_ = 0;
};

}  // namespace metronome
