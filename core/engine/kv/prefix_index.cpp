// SPDX-License-Identifier: Apache-2.0
#include "core/engine/kv/prefix_index.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/error.h"

namespace metronome {

PrefixIndex::PrefixIndex(std::int64_t num_blocks, DuplicateRule rule, std::int64_t num_units,
                         bool has_positions)
    : rule_(rule), num_units_(num_units) {
  METRONOME_CHECK(num_blocks > 0 && num_units > 0, "an index has blocks");
  if (has_positions) primaries_.resize(1);
  grow_to(num_blocks);
}

void PrefixIndex::grow_to(std::int64_t num_blocks) {
  METRONOME_CHECK(num_blocks <= INT32_MAX / num_units_, "an index has 1 to 2^31 - 1 entries");
  const auto count = static_cast<std::size_t>(num_blocks * num_units_);
  if (count <= entries_.size()) return;
  entries_.resize(count);
  if (!primaries_.empty()) primaries_.resize(static_cast<std::size_t>(num_blocks));
  const std::size_t num_slots = rule_ == DuplicateRule::Unlisted ? kSlots : 2 * count;
  const std::size_t num_buckets = std::bit_ceil((num_slots + kSlots - 1) / kSlots);
  METRONOME_CHECK(num_buckets < UINT32_MAX / kPlaces, "a slot has a number of 32 bits");
  if (num_buckets > buckets_.size()) spread(num_buckets);
}

// Gives the hashes so many buckets, which have more room than those before.
void PrefixIndex::spread(std::size_t num_buckets) {
  const std::vector<Bucket> before = std::exchange(buckets_, std::vector<Bucket>(num_buckets));
  mask_ = num_buckets - 1;
  shift_ = std::min(63, 64 - std::countr_zero(num_buckets));
  for (const Bucket& bucket : before) {
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      if (bucket.hashes[slot] == kNoHash) continue;
      const Entry first = bucket.firsts[slot];
      const std::uint32_t place = find_room(home_of(bucket.hashes[slot]));
      put(place, bucket.hashes[slot], first);
      for (Entry entry = first;; entry = entries_[index(entry)].next) {
        entries_[index(entry)].place = place;
        if (entry == entries_[index(first)].previous) break;
      }
    }
  }
}

void PrefixIndex::insert(BlockId block, BlockHash hash, std::int64_t position) {
  METRONOME_CHECK(!primaries_.empty() && position > 0, "this index has no positions");
  if (has(block, hash, position)) return;
  insert_entry(entry_of(block, position), hash);
  Primary& primary = primaries_[index(block)];
  if (primary.hash == kNoHash) primary = {hash, position};
}

// Inserts an entry whose hash may have another one, or no room in its home bucket.
void PrefixIndex::insert_slowly(Entry entry) {
  Hashed& hashed = entries_[index(entry)];
  if (rule_ == DuplicateRule::Unlisted) {
    ++size_;
    return;
  }
  hashed.place = locate(hashed.hash);
  if (hashed.place == kNoPlace) return occupy(find_room(home_of(hashed.hash)), entry);
  Entry& first = first_at(hashed.place);
  Hashed& earliest = entries_[index(first)];
  if (rule_ == DuplicateRule::KeepLatest) {
    earliest.hash = kNoHash;
    first = entry;
  } else {
    hashed.previous = std::exchange(earliest.previous, entry);
    entries_[index(hashed.previous)].next = entry;
    ++size_;
  }
}

// The first empty slot, from the home bucket of a new hash on.
inline std::uint32_t PrefixIndex::find_room(std::size_t home) {
  std::size_t distance = 0;
  while (buckets_[(home + distance) & mask_].used == kAllUsed) ++distance;
  if (distance > 0) [[unlikely]] {
    Bucket& bucket = buckets_[home];
    METRONOME_CHECK(bucket.num_away < UINT16_MAX, "hashes are mixed");
    ++bucket.num_away;
    bucket.reach =
        std::max(bucket.reach, static_cast<std::uint8_t>(std::min<std::size_t>(distance, kFar)));
  }
  const std::size_t at = (home + distance) & mask_;
  return place_of(at, ~unsigned{buckets_[at].used});
}

inline void PrefixIndex::vacate(std::uint32_t place) {
  Bucket& bucket = buckets_[place / kPlaces];
  const std::uint32_t slot = place % kPlaces;
  Bucket& home = buckets_[home_of(std::exchange(bucket.hashes[slot], kNoHash))];
  bucket.firsts[slot] = kNoBlock;
  bucket.used = static_cast<std::uint8_t>(bucket.used & ~(1u << slot));
  if (&home != &bucket && --home.num_away == 0) home.reach = 0;
}

void PrefixIndex::erase_positions(BlockId block) {
  for (std::int64_t position = 1; position <= num_units_; ++position) {
    const Entry entry = entry_of(block, position);
    if (entries_[index(entry)].hash != kNoHash) erase_entry(entry);
  }
  primaries_[index(block)] = {};
}

void PrefixIndex::erase_entry(Entry entry) {
  Hashed& hashed = entries_[index(entry)];
  if (hashed.place == kNoPlace) {
    hashed.hash = kNoHash;
    --num_marked_;
    return;
  }
  if (rule_ != DuplicateRule::Unlisted) {
    METRONOME_CHECK(hash_at(hashed.place) == hashed.hash, "a hashed block is found by its hash");
    if (hashed.previous == entry) {
      vacate(hashed.place);
    } else {
      unlink(entry);
    }
  }
  hashed.hash = kNoHash;
  --size_;
}

void PrefixIndex::move(BlockId from, BlockId to) {
  METRONOME_CHECK(!primaries_.empty(), "this index has no positions");
  METRONOME_CHECK(hash_of(to) == kNoHash, "the new block has no content yet");
  const Primary primary = primaries_[index(from)];
  if (primary.hash == kNoHash) return;
  std::vector<BlockHash> hashes;
  for (std::int64_t position = 1; position <= num_units_; ++position) {
    hashes.push_back(entries_[index(entry_of(from, position))].hash);
  }
  erase(from);
  insert(to, primary.hash, primary.position);
  for (std::int64_t position = 1; position <= num_units_; ++position) {
    const BlockHash hash = hashes[static_cast<std::size_t>(position - 1)];
    if (hash != kNoHash) insert(to, hash, position);
  }
}

// Removes one of several entries with the same hash from their list.
void PrefixIndex::unlink(Entry entry) {
  const Hashed& hashed = entries_[index(entry)];
  Entry& first = first_at(hashed.place);
  const bool is_last = entries_[index(first)].previous == entry;
  if (!is_last) entries_[index(hashed.next)].previous = hashed.previous;
  if (entry == first) {
    first = hashed.next;
    return;
  }
  if (is_last) {
    entries_[index(first)].previous = hashed.previous;
  } else {
    entries_[index(hashed.previous)].next = hashed.next;
  }
}

// Checks the entries of one slot. Returns their number.
std::int64_t PrefixIndex::check_entries_at(std::uint32_t place) const {
  const BlockHash hash = buckets_[place / kPlaces].hashes[place % kPlaces];
  std::int64_t count = 0;
  Entry entry = first_at(place);
  METRONOME_CHECK(index(entry) < entries_.size(), "the prefix index names a block out of range");
  const Entry last = entries_[index(entry)].previous;
  while (true) {
    METRONOME_CHECK(entries_[index(entry)].hash == hash,
                    "a block is listed under another one's hash");
    METRONOME_CHECK(entries_[index(entry)].place == place, "a block's slot is another one");
    METRONOME_CHECK(++count <= size_, "blocks of one hash form a cycle");
    if (entry == last) return count;
    const Entry next = entries_[index(entry)].next;
    METRONOME_CHECK(index(next) < entries_.size() && entries_[index(next)].previous == entry,
                    "neighbours of one hash disagree");
    entry = next;
  }
}

void PrefixIndex::check_primaries() const {
  for (std::size_t i = 0; i < primaries_.size(); ++i) {
    const BlockId block{static_cast<std::int32_t>(i)};
    const Primary& primary = primaries_[i];
    bool has_hash = false;
    for (std::int64_t position = 1; position <= num_units_; ++position) {
      has_hash = has_hash || entries_[index(entry_of(block, position))].hash != kNoHash;
    }
    METRONOME_CHECK(has_hash == (primary.hash != kNoHash), "a hashed block has a primary hash");
    METRONOME_CHECK(!has_hash || has(block, primary.hash, primary.position),
                    "the primary hash is that of its position");
  }
}

void PrefixIndex::check_integrity() const {
  const auto num_hashed = std::count_if(entries_.begin(), entries_.end(), [](const Hashed& hashed) {
    return hashed.hash != kNoHash;
  });
  METRONOME_CHECK(num_hashed == size_ + num_marked_, "the hashed blocks differ from their count");
  check_primaries();
  if (rule_ == DuplicateRule::Unlisted) return;
  std::int64_t num_listed = 0;
  std::vector<std::uint16_t> num_away(buckets_.size(), 0);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      const BlockHash hash = buckets_[bucket].hashes[slot];
      METRONOME_CHECK((hash != kNoHash) == (buckets_[bucket].used >> slot & 1),
                      "a bucket's slots are miscounted");
      if (hash == kNoHash) {
        METRONOME_CHECK(buckets_[bucket].firsts[slot] == kNoBlock, "an empty slot finds a block");
        continue;
      }
      const std::uint32_t place = place_of(bucket, 1u << slot);
      METRONOME_CHECK(locate(hash) == place, "a hash is not found where it is");
      METRONOME_CHECK(rule_ != DuplicateRule::KeepLatest ||
                          entries_[index(first_at(place))].previous == first_at(place),
                      "an older block of the same content is kept");
      if (bucket != home_of(hash)) ++num_away[home_of(hash)];
      num_listed += check_entries_at(place);
    }
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    METRONOME_CHECK(num_away[i] == buckets_[i].num_away, "hashes away from home are miscounted");
  }
  METRONOME_CHECK(num_listed == size_, "a hashed block is not found");
}

}  // namespace metronome
