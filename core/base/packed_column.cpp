// SPDX-License-Identifier: Apache-2.0
#include "core/base/packed_column.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "core/base/error.h"

namespace metronome {
namespace {

constexpr std::size_t kBlock = PackedColumn::kBlock;
using Values = std::span<std::int64_t, kBlock>;
using ConstValues = std::span<const std::int64_t, kBlock>;

// Calls visit(i) for each value of a block: eight at a time, as the compiler unrolls the inner
// loop.
template <class Visit>
inline void for_each_value(const Visit& visit) {
  for (std::size_t begin = 0; begin < kBlock; begin += 8) {
    for (std::size_t i = begin; i < begin + 8; ++i) visit(i);
  }
}

// The number of bytes is a constant of each of these, which makes their loops several times as
// fast. A value is moved as a whole word, of which the next one overwrites what is too much.
template <std::size_t kNumBytes>
void write_low_bytes(ConstValues values, std::byte* to) {
  for_each_value(
      [&](std::size_t i) { std::memcpy(to + i * kNumBytes, &values[i], sizeof(std::int64_t)); });
}

template <std::size_t kNumBytes>
void read_low_bytes(std::uint64_t first, const std::byte* from, Values out) {
  constexpr std::uint64_t kMask = ~std::uint64_t{0} >> (64 - 8 * kNumBytes);
  const std::uint64_t high = first & ~kMask;
  for_each_value([&](std::size_t i) {
    std::uint64_t low;
    std::memcpy(&low, from + i * kNumBytes, sizeof(low));
    out[i] = static_cast<std::int64_t>(high | (low & kMask));
  });
}

// Calls visit(std::integral_constant) with the number as a constant.
template <class Visit>
void with_constant(std::size_t num_bytes, const Visit& visit) {
  using std::integral_constant;
  switch (num_bytes) {
    case 1: return visit(integral_constant<std::size_t, 1>());
    case 2: return visit(integral_constant<std::size_t, 2>());
    case 3: return visit(integral_constant<std::size_t, 3>());
    case 4: return visit(integral_constant<std::size_t, 4>());
    case 5: return visit(integral_constant<std::size_t, 5>());
    case 6: return visit(integral_constant<std::size_t, 6>());
    case 7: return visit(integral_constant<std::size_t, 7>());
    default: return visit(integral_constant<std::size_t, 8>());
  }
}

}  // namespace

void PackedColumn::pack(std::span<const std::int64_t, kBlock> values) {
  const std::int64_t first = values.front();
  std::array<std::int64_t, 8> differences = {};
  for_each_value([&](std::size_t i) { differences[i % 8] |= values[i] ^ first; });
  std::uint64_t differing = 0;
  for (const std::int64_t bits : differences) differing |= static_cast<std::uint64_t>(bits);
  const auto num_bytes = static_cast<std::size_t>(std::bit_width(differing) + 7) / 8;
  std::byte* const to = append(first, num_bytes);
  if (num_bytes == 0) return;
  with_constant(num_bytes, [&](auto bytes) { write_low_bytes<bytes.value>(values, to); });
}

// A block whose values have so many bytes of their own. Returns where these belong.
std::byte* PackedColumn::append(std::int64_t first, std::size_t num_bytes) {
  const std::size_t num_needed = kBlock * num_bytes;
  if (num_needed > num_left_) {
    pages_.push_back(
        std::shared_ptr<std::byte[]>(new std::byte[kPageBytes + sizeof(std::uint64_t) - 1]));
    num_left_ = kPageBytes;
  }
  const std::size_t place = pages_.size() * kPageBytes - num_left_;
  METRONOME_CHECK(place <= UINT32_MAX, "a column has at most four gigabytes");
  num_left_ -= num_needed;
  blocks_.push_back({.first = first,
                     .place = static_cast<std::uint32_t>(place),
                     .num_bytes = static_cast<std::uint32_t>(num_bytes)});
  return num_needed == 0 ? nullptr : pages_.back().get() + place % kPageBytes;
}

PackedColumn PackedColumn::share_blocks(std::size_t first, std::size_t last) const {
  PackedColumn shared;
  shared.size_ = (last - first) * kBlock;
  const auto begin = blocks_.begin();
  shared.blocks_.assign(begin + static_cast<std::ptrdiff_t>(first),
                        begin + static_cast<std::ptrdiff_t>(last));
  const auto has_bytes = [](const Block& block) { return block.num_bytes > 0; };
  const auto begins = std::find_if(shared.blocks_.begin(), shared.blocks_.end(), has_bytes);
  if (begins == shared.blocks_.end()) return shared;
  const auto ends = std::find_if(shared.blocks_.rbegin(), shared.blocks_.rend(), has_bytes);
  const std::size_t first_page = begins->place / kPageBytes;
  const std::size_t last_page = ends->place / kPageBytes;
  shared.pages_.assign(pages_.begin() + static_cast<std::ptrdiff_t>(first_page),
                       pages_.begin() + static_cast<std::ptrdiff_t>(last_page) + 1);
  for (Block& block : shared.blocks_) {
    if (has_bytes(block)) block.place -= static_cast<std::uint32_t>(first_page * kPageBytes);
  }
  return shared;
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
  // A copy, as the word of the last value ends behind the block, where another thread may write.
  std::array<std::byte, kBlock * sizeof(std::uint64_t) + sizeof(std::uint64_t) - 1> copy;
  const std::size_t num_copied = kBlock * packed.num_bytes;
  std::memcpy(copy.data(), bytes_of(packed), num_copied);
  std::memset(copy.data() + num_copied, 0, sizeof(std::uint64_t) - 1);
  with_constant(packed.num_bytes, [&](auto bytes) {
    read_low_bytes<bytes.value>(static_cast<std::uint64_t>(packed.first), copy.data(), out);
  });
}

std::size_t PackedColumn::num_bytes() const {
  return blocks_.capacity() * sizeof(Block) + pages_.size() * kPageBytes;
}

}  // namespace metronome
