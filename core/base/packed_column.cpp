#include "core/base/packed_column.h"

#include <algorithm>
#include <bit>

namespace metronome {

std::uint64_t* PackedColumn::words(std::size_t num_words) {
  if (page_words_ + num_words > kPageWords) {
    pages_.push_back(std::make_unique<std::uint64_t[]>(kPageWords + 1));
    page_words_ = 0;
  }
  std::uint64_t* const begin = pages_.back().get() + page_words_;
  page_words_ += num_words;
  return begin;
}

void PackedColumn::pack(std::span<const std::int64_t, kBlock> values) {
  std::uint64_t differing = 0;  // most columns rarely change
  for (const std::int64_t value : values) {
    differing |= static_cast<std::uint64_t>(value ^ values.front());
  }
  if (differing == 0) {
    blocks_.push_back({.least = values.front(), .words = nullptr, .num_bits = 0});
    return;
  }
  std::int64_t least = values.front();
  std::int64_t most = values.front();
  for (const std::int64_t value : values) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  const auto base = static_cast<std::uint64_t>(least);
  const auto num_bits =
      static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(most) - base));
  std::uint64_t* word = words(kBlock * num_bits / 64);
  blocks_.push_back({.least = least, .words = word, .num_bits = num_bits});
  std::uint64_t bits = 0;  // of the word at hand
  std::uint32_t num_filled = 0;
  for (const std::int64_t value : values) {
    const std::uint64_t difference = static_cast<std::uint64_t>(value) - base;
    bits |= difference << num_filled;
    num_filled += num_bits;
    if (num_filled < 64) continue;
    *word++ = bits;
    num_filled -= 64;
    bits = num_filled > 0 ? difference >> (num_bits - num_filled) : 0;
  }
}

void PackedColumn::read_block(std::size_t block, std::span<std::int64_t, kBlock> out) const {
  if (block == blocks_.size()) {
    std::copy_n(last_.begin(), size_ % kBlock, out.begin());
    return;
  }
  const Block& packed = blocks_[block];
  if (packed.num_bits == 0) {
    std::fill(out.begin(), out.end(), packed.least);
    return;
  }
  if (packed.num_bits > kMaxNarrow) {
    for (std::size_t i = 0; i < kBlock; ++i) out[i] = packed.wide(i);
    return;
  }
  for (std::size_t i = 0; i < kBlock; ++i) out[i] = packed.narrow(i);
}

std::size_t PackedColumn::num_bytes() const {
  return blocks_.capacity() * sizeof(Block) + pages_.size() * kPageWords * sizeof(std::uint64_t);
}

}  // namespace metronome
