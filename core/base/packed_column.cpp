#include "core/base/packed_column.h"

#include <algorithm>
#include <bit>

#include "core/base/error.h"

namespace metronome {

void PackedColumn::pack(std::span<const std::int64_t, kBlock> values) {
  std::uint64_t differing = 0;
  for (const std::int64_t value : values) {
    differing |= static_cast<std::uint64_t>(value ^ values.front());
  }
  const auto num_bytes = static_cast<std::size_t>(std::bit_width(differing) + 7) / 8;
  const std::size_t num_needed = kBlock * num_bytes;
  if (num_needed > num_left_) {
    pages_.push_back(std::make_unique<std::byte[]>(kPageBytes + sizeof(std::uint64_t) - 1));
    num_left_ = kPageBytes;
  }
  const std::size_t place = pages_.size() * kPageBytes - num_left_;
  METRONOME_CHECK(place <= UINT32_MAX, "a column has at most four gigabytes");
  num_left_ -= num_needed;
  blocks_.push_back({.first = values.front(),
                     .place = static_cast<std::uint32_t>(place),
                     .num_bytes = static_cast<std::uint32_t>(num_bytes)});
  if (num_bytes == 0) return;
  std::byte* to = pages_.back().get() + place % kPageBytes;
  for (const std::int64_t value : values) {  // the next one overwrites what is too much
    std::memcpy(to, &value, sizeof(value));
    to += num_bytes;
  }
}

void PackedColumn::read_block(std::size_t block, std::span<std::int64_t, kBlock> out) const {
  if (block == blocks_.size()) {
    std::copy_n(last_.begin(), size_ % kBlock, out.begin());
    return;
  }
  const Block& packed = blocks_[block];
  if (packed.num_bytes == 0) {
    std::fill(out.begin(), out.end(), packed.first);
    return;
  }
  const std::byte* const bytes = bytes_of(packed);
  for (std::size_t i = 0; i < kBlock; ++i) out[i] = packed.value(bytes, i);
}

std::size_t PackedColumn::num_bytes() const {
  return blocks_.capacity() * sizeof(Block) + pages_.size() * kPageBytes;
}

}  // namespace metronome
