#include "core/engine/kv/prefix_index.h"

#include <algorithm>
#include <bit>

#include "core/base/error.h"

namespace metronome {

PrefixIndex::PrefixIndex(std::int64_t num_blocks, DuplicateRule rule, std::int64_t num_units,
                         bool has_positions)
    : rule_(rule), num_blocks_(static_cast<std::size_t>(num_blocks)), num_units_(num_units) {
  METRONOME_CHECK(num_blocks > 0 && num_units > 0 && num_blocks <= INT32_MAX / num_units,
                  "an index has 1 to 2^31 - 1 entries");
  const std::size_t count = num_blocks_ * static_cast<std::size_t>(num_units);
  const std::size_t num_slots = rule == DuplicateRule::Unlisted ? kSlots : 2 * count;
  buckets_.resize(std::bit_ceil((num_slots + kSlots - 1) / kSlots));
  overflows_.resize(buckets_.size());
  mask_ = buckets_.size() - 1;
  shift_ = std::min(63, 64 - std::countr_zero(buckets_.size()));
  METRONOME_CHECK(buckets_.size() <= UINT32_MAX / kSlots, "a slot has a number of 32 bits");
  hashes_.assign(count, kNoHash);
  if (rule != DuplicateRule::Unlisted) places_.resize(count);
  neighbours_.assign(count, {kNoBlock, kNoBlock});
  if (has_positions) primaries_.resize(num_blocks_);
}

void PrefixIndex::insert(BlockId block, BlockHash hash, std::int64_t position) {
  METRONOME_CHECK(!primaries_.empty() && position > 0, "this index has no positions");
  if (has(block, hash, position)) return;
  insert_entry(entry_of(block, position), hash);
  Primary& primary = primaries_[index(block)];
  if (primary.hash == kNoHash) primary = {hash, position};
}

void PrefixIndex::insert_entry(Entry entry, BlockHash hash) {
  METRONOME_CHECK(hash != kNoHash, "a block's content has a hash");
  METRONOME_CHECK(hashes_[index(entry)] == kNoHash, "a block is hashed once");
  hashes_[index(entry)] = hash;
  if (rule_ == DuplicateRule::Unlisted) {
    ++size_;
    return;
  }
  const std::size_t home = home_of(hash);
  const bool is_new = overflows_[home].reach == 0 && matches(buckets_[home], hash) == 0;
  Slot* const slot = is_new ? nullptr : locate(hash);
  if (slot == nullptr) [[likely]] {
    const std::uint32_t place = find_room(home);
    slot_at(place) = {hash, entry, entry};
    places_[index(entry)] = place;
    ++size_;
    return;
  }
  places_[index(entry)] = place_of(*slot);
  if (rule_ == DuplicateRule::KeepLatest) {
    hashes_[index(slot->first)] = kNoHash;
    slot->first = entry;
    slot->last = entry;
  } else {
    neighbours_[index(slot->last)].next = entry;
    neighbours_[index(entry)].previous = slot->last;
    slot->last = entry;
    ++size_;
  }
}

// The first empty slot, from the home bucket of a new hash on.
inline std::uint32_t PrefixIndex::find_room(std::size_t home) {
  std::size_t distance = 0;
  unsigned empty = matches(buckets_[home], kNoHash);
  while (empty == 0) {
    ++distance;
    empty = matches(buckets_[(home + distance) & mask_], kNoHash);
  }
  if (distance > 0) {
    Overflow& overflow = overflows_[home];
    METRONOME_CHECK(distance <= UINT16_MAX && overflow.num_away < UINT16_MAX, "hashes are mixed");
    ++overflow.num_away;
    overflow.reach = std::max(overflow.reach, static_cast<std::uint16_t>(distance));
  }
  const std::size_t slot = static_cast<std::size_t>(std::countr_zero(empty));
  return static_cast<std::uint32_t>(((home + distance) & mask_) * kSlots + slot);
}

std::uint32_t PrefixIndex::place_of(const Slot& slot) const {
  const auto offset = static_cast<std::size_t>(reinterpret_cast<const char*>(&slot) -
                                               reinterpret_cast<const char*>(buckets_.data()));
  return static_cast<std::uint32_t>(offset / sizeof(Slot));
}

inline void PrefixIndex::vacate(std::uint32_t place) {
  Slot& slot = slot_at(place);
  const std::size_t home = home_of(slot.hash);
  slot = {};
  if (place / kSlots != home && --overflows_[home].num_away == 0) overflows_[home].reach = 0;
}

void PrefixIndex::erase_positions(BlockId block) {
  for (std::int64_t position = 1; position <= num_units_; ++position) {
    const Entry entry = entry_of(block, position);
    if (hashes_[index(entry)] != kNoHash) erase_entry(entry);
  }
  primaries_[index(block)] = {};
}

void PrefixIndex::erase_entry(Entry entry) {
  if (rule_ != DuplicateRule::Unlisted) {
    const std::uint32_t place = places_[index(entry)];
    Slot& slot = slot_at(place);
    METRONOME_CHECK(slot.hash == hashes_[index(entry)], "a hashed block is found by its hash");
    if (slot.first == slot.last) {
      vacate(place);
    } else {
      unlink(entry, slot);
    }
  }
  hashes_[index(entry)] = kNoHash;
  --size_;
}

void PrefixIndex::move(BlockId from, BlockId to) {
  METRONOME_CHECK(!primaries_.empty(), "this index has no positions");
  METRONOME_CHECK(hash_of(to) == kNoHash, "the new block has no content yet");
  const Primary primary = primaries_[index(from)];
  if (primary.hash == kNoHash) return;
  std::vector<BlockHash> hashes;
  for (std::int64_t position = 1; position <= num_units_; ++position) {
    hashes.push_back(hashes_[index(entry_of(from, position))]);
  }
  erase(from);
  insert(to, primary.hash, primary.position);
  for (std::int64_t position = 1; position <= num_units_; ++position) {
    const BlockHash hash = hashes[static_cast<std::size_t>(position - 1)];
    if (hash != kNoHash) insert(to, hash, position);
  }
}

// Removes one of several entries with the same hash from their list.
void PrefixIndex::unlink(Entry entry, Slot& slot) {
  const Neighbours around = neighbours_[index(entry)];
  if (entry == slot.first) {
    slot.first = around.next;
  } else if (entry == slot.last) {
    slot.last = around.previous;
  } else {
    neighbours_[index(around.previous)].next = around.next;
    neighbours_[index(around.next)].previous = around.previous;
  }
}

// Checks the entries of one slot. Returns their number.
std::int64_t PrefixIndex::check_entries_of(const Slot& slot) const {
  std::int64_t count = 0;
  for (Entry entry = slot.first;; entry = neighbours_[index(entry)].next) {
    METRONOME_CHECK(index(entry) < hashes_.size(), "the prefix index names a block out of range");
    METRONOME_CHECK(hashes_[index(entry)] == slot.hash,
                    "a block is listed under another one's hash");
    METRONOME_CHECK(places_[index(entry)] == place_of(slot), "a block's slot is another one");
    METRONOME_CHECK(++count <= size_, "blocks of one hash form a cycle");
    if (entry == slot.last) return count;
    const Entry next = neighbours_[index(entry)].next;
    METRONOME_CHECK(index(next) < hashes_.size() && neighbours_[index(next)].previous == entry,
                    "neighbours of one hash disagree");
  }
}

void PrefixIndex::check_primaries() const {
  for (std::size_t i = 0; i < primaries_.size(); ++i) {
    const BlockId block{static_cast<std::int32_t>(i)};
    const Primary& primary = primaries_[i];
    bool has_hash = false;
    for (std::int64_t position = 1; position <= num_units_; ++position) {
      has_hash = has_hash || hashes_[index(entry_of(block, position))] != kNoHash;
    }
    METRONOME_CHECK(has_hash == (primary.hash != kNoHash), "a hashed block has a primary hash");
    METRONOME_CHECK(!has_hash || has(block, primary.hash, primary.position),
                    "the primary hash is that of its position");
  }
}

void PrefixIndex::check_integrity() const {
  const auto num_hashed = static_cast<std::int64_t>(hashes_.size()) -
                          std::count(hashes_.begin(), hashes_.end(), kNoHash);
  METRONOME_CHECK(num_hashed == size_, "the hashed blocks differ from their count");
  check_primaries();
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
      if (place_of(slot) / kSlots != home) ++num_away[home];
      num_listed += check_entries_of(slot);
    }
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    METRONOME_CHECK(num_away[i] == overflows_[i].num_away, "hashes away from home are miscounted");
  }
  METRONOME_CHECK(num_listed == size_, "a hashed block is not found");
}

}  // namespace metronome
