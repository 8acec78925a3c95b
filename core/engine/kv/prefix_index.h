// SPDX-License-Identifier: Apache-2.0
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
  // For blocks [0, num_blocks), 0 < num_blocks < 2^31. Allocates nothing but in grow_to().
  PrefixIndex(std::int64_t num_blocks, DuplicateRule rule)
      : PrefixIndex(num_blocks, rule, 1, false) {}
  // Prefixes end at multiples of a unit of tokens, of which a block has `num_units`. A block may
  // have a hash for each of these positions.
  PrefixIndex(std::int64_t num_blocks, std::int64_t num_units)
      : PrefixIndex(num_blocks, DuplicateRule::KeepAll, num_units, true) {}

  // From now on for blocks [0, num_blocks), if these are more. Cost: O(blocks).
  void grow_to(std::int64_t num_blocks);

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
  // Inserts the hash of a prefix that ends inside the block. If the primary hash is of an earlier
  // position, the block loses its hashes before (vLLM's BlockPool.cache_partial_block).
  void insert_inside(BlockId block, BlockHash hash, std::int64_t position) {
    if (!has(block, hash, position) && position_of(block) < position) erase(block);
    insert(block, hash, position);
  }
  // Gives a block without a hash one that no lookup finds: it counts as hashed. Not with positions.
  void mark(BlockId block) {
    Hashed& hashed = entries_[index(block)];
    METRONOME_CHECK(hashed.hash == kNoHash && primaries_.empty(), "a block is hashed once");
    hashed = {.hash = BlockHash{UINT64_MAX}, .place = kNoPlace, .previous = block, .next = block};
    ++num_marked_;
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
    const std::uint32_t place = locate(hash);
    return place == kNoPlace ? kNoBlock : block_of(first_at(place));
  }
  // Whether find(hash) would give this block; cheaper. Where a block has several hashes it may say
  // no of one that is not its first.
  bool finds(BlockHash hash, BlockId block) const {
    const Entry entry = first_entry_of(block);
    const Hashed& hashed = entries_[index(entry)];
    return hashed.hash == hash && first_at(hashed.place) == entry;
  }
  // Loads a hash's bucket, or what is known of a block, into the CPU cache, for a find, insert or
  // erase soon after. Inlined always: GCC drops calls of functions that only prefetch, as they have
  // no effect.
  [[gnu::always_inline]] void prefetch(BlockHash hash) const {
    __builtin_prefetch(&buckets_[home_of(hash)], 1);
  }
  [[gnu::always_inline]] void prefetch(BlockId block) const {
    __builtin_prefetch(&entries_[index(first_entry_of(block))], 1);
  }
  // The primary hash.
  BlockHash hash_of(BlockId block) const {
    return primaries_.empty() ? entries_[index(block)].hash : primaries_[index(block)].hash;
  }
  // With positions: that of the primary hash; 0 without a hash.
  std::int64_t position_of(BlockId block) const { return primaries_.at(index(block)).position; }
  // With positions: whether the block has this hash.
  bool has(BlockId block, BlockHash hash, std::int64_t position) const {
    return entries_[index(entry_of(block, position))].hash == hash;
  }
  std::int64_t size() const { return size_; }  // hashes of blocks, without marks

  // Throws InvariantError unless exactly the hashed blocks are found through their hashes. Cost:
  // O(blocks).
  void check_integrity() const;

 private:
  // An entry is a hash of a block: each block has num_units of them, one for each unit at which a
  // position may end.
  using Entry = BlockId;
  struct Primary {
    BlockHash hash = kNoHash;
    std::int64_t position = 0;
  };
  // A hash is in its home bucket, or in a later one if that was full. Then the home's `num_away`
  // counts it, and `reach` is an upper bound of the distance, or kFar. One cache line.
  static constexpr std::size_t kSlots = 5;
  struct alignas(64) Bucket {
    std::array<BlockHash, kSlots> hashes = {};  // kNoHash: an empty slot
    // The entry of that hash that was inserted first.
    std::array<Entry, kSlots> firsts = {kNoBlock, kNoBlock, kNoBlock, kNoBlock, kNoBlock};
    std::uint16_t num_away = 0;
    std::uint8_t reach = 0;
    std::uint8_t used = 0;  // bit i: slot i has a hash
  };
  static constexpr std::uint8_t kFar = UINT8_MAX;
  static constexpr unsigned kAllUsed = (1u << kSlots) - 1;
  // Of an entry. Those of the same hash are linked in order of insertion.
  struct Hashed {
    BlockHash hash = kNoHash;
    std::uint32_t place = 0;  // the slot of its hash
    Entry previous;           // of the first: the last one
    Entry next;               // not set for the last
  };
  // A slot's number: that of its bucket times kPlaces, and its own.
  static constexpr std::uint32_t kPlaces = 8;
  static constexpr std::uint32_t kNoPlace = UINT32_MAX;

  // Hashes are well mixed. Uses the high bits, because a caller may have forced a low one.
  std::size_t home_of(BlockHash hash) const {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(hash) >> shift_) & mask_;
  }
  // Bit i: slot i of the bucket holds `hash`. Branch-free, because the slot is unpredictable.
  static unsigned matches(const Bucket& bucket, BlockHash hash) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < kSlots; ++i) {
      bits |= static_cast<unsigned>(bucket.hashes[i] == hash) << i;
    }
    return bits;
  }
  static bool has(const Bucket& bucket, BlockHash hash) {
    unsigned bits = 0;
    for (const BlockHash each : bucket.hashes) bits |= static_cast<unsigned>(each == hash);
    return bits != 0;
  }
  static std::uint32_t place_of(std::size_t bucket, unsigned bits) {
    return static_cast<std::uint32_t>(bucket) * kPlaces +
           static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  // kNoPlace: no entry has the hash.
  std::uint32_t locate(BlockHash hash) const {
    const std::size_t home = home_of(hash);
    for (std::size_t distance = 0;; ++distance) {
      const std::size_t at = (home + distance) & mask_;
      if (const unsigned bits = matches(buckets_[at], hash)) return place_of(at, bits);
      const std::size_t reach = buckets_[home].reach;
      if (distance >= (reach == kFar ? mask_ : reach)) return kNoPlace;
    }
  }
  static std::int64_t number(BlockId id) { return static_cast<std::int64_t>(id); }
  BlockId block_of(Entry entry) const {
    return num_units_ == 1 ? entry : BlockId(static_cast<std::int32_t>(number(entry) / num_units_));
  }
  Entry first_entry_of(BlockId block) const {
    return num_units_ == 1 ? block : BlockId(static_cast<std::int32_t>(number(block) * num_units_));
  }
  Entry entry_of(BlockId block, std::int64_t position) const {
    const std::int64_t unit = (position - 1) % num_units_;
    return BlockId(static_cast<std::int32_t>(number(block) * num_units_ + unit));
  }
  PrefixIndex(std::int64_t num_blocks, DuplicateRule rule, std::int64_t num_units,
              bool has_positions);
  void insert_entry(Entry entry, BlockHash hash) {
    METRONOME_CHECK(hash != kNoHash, "a block's content has a hash");
    Hashed& hashed = entries_[index(entry)];
    METRONOME_CHECK(hashed.hash == kNoHash, "a block is hashed once");
    hashed.hash = hash;
    hashed.previous = entry;
    const std::size_t at = home_of(hash);
    const Bucket& home = buckets_[at];
    const bool is_new_at_home = home.reach == 0 && home.used != kAllUsed && !has(home, hash);
    if (is_new_at_home && rule_ != DuplicateRule::Unlisted) [[likely]] {
      occupy(place_of(at, ~unsigned{home.used}), entry);
    } else {
      insert_slowly(entry);
    }
  }
  // Takes an empty slot for a hash without one.
  void occupy(std::uint32_t place, Entry entry) {
    Hashed& hashed = entries_[index(entry)];
    hashed.place = place;
    put(place, hashed.hash, entry);
    ++size_;
  }
  void put(std::uint32_t place, BlockHash hash, Entry first) {
    Bucket& bucket = buckets_[place / kPlaces];
    const std::uint32_t slot = place % kPlaces;
    bucket.hashes[slot] = hash;
    bucket.firsts[slot] = first;
    bucket.used = static_cast<std::uint8_t>(bucket.used | 1u << slot);
  }
  void insert_slowly(Entry entry);
  void erase_positions(BlockId block);
  void erase_entry(Entry entry);
  std::uint32_t find_room(std::size_t home);
  void vacate(std::uint32_t place);
  void spread(std::size_t num_buckets);
  void unlink(Entry entry);
  BlockHash& hash_at(std::uint32_t place) {
    return buckets_[place / kPlaces].hashes[place % kPlaces];
  }
  Entry& first_at(std::uint32_t place) { return buckets_[place / kPlaces].firsts[place % kPlaces]; }
  Entry first_at(std::uint32_t place) const {
    return buckets_[place / kPlaces].firsts[place % kPlaces];
  }
  std::int64_t check_entries_at(std::uint32_t place) const;
  void check_primaries() const;

  DuplicateRule rule_;
  std::int64_t num_units_;
  std::vector<Bucket> buckets_;  // a power of two, at most half full
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::vector<Hashed> entries_;     // [num_blocks][num_units]
  std::vector<Primary> primaries_;  // [num_blocks] with positions, else empty
  std::int64_t size_ = 0;
  std::int64_t num_marked_ = 0;
};

}  // namespace metronome
