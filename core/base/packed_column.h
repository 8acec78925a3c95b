// SPDX-License-Identifier: Apache-2.0
// A growing column of integers in few bytes. Any value is read in constant time.
//
// Values are stored in blocks: the first value of the block, and of each value as many of its
// lowest bytes as any differs in. So a column that rarely changes takes about a bit a value, and
// one of ascending times the bytes of a block's time span.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace metronome {

class PackedColumn {
 public:
  static constexpr std::size_t kBlock = 128;

  PackedColumn() = default;
  PackedColumn(PackedColumn&&) = default;
  PackedColumn& operator=(PackedColumn&&) = default;

  void push_back(std::int64_t value) {
    last_[size_ % kBlock] = value;
    if (++size_ % kBlock == 0) pack(last_);
  }

  // Appends a block of values at once. Requires that those before fill whole blocks.
  void append_block(std::span<const std::int64_t, kBlock> values) {
    size_ += kBlock;
    pack(values);
  }

  // Blocks [first, last), which are full. Shares their bytes, so that another thread may read them,
  // by read_block() alone, while this column grows.
  PackedColumn share_blocks(std::size_t first, std::size_t last) const;

  std::size_t size() const { return size_; }
  // Requires i < size().
  std::int64_t operator[](std::size_t i) const {
    const std::size_t block = i / kBlock;
    if (block == blocks_.size()) return last_[i % kBlock];
    const Block& packed = blocks_[block];
    return packed.num_bytes == 0 ? packed.first : packed.value(bytes_of(packed), i % kBlock);
  }
  // Values [block * kBlock, ...) up to the block's end or the last value; `out` has room for them.
  void read_block(std::size_t block, std::span<std::int64_t, kBlock> out) const;

  // Bytes of heap memory.
  std::size_t num_bytes() const;

 private:
  static_assert(std::endian::native == std::endian::little, "the lowest bytes come first");
  // Bytes of blocks lie in pages, none of which moves. A value is read and written as a whole word,
  // so each page has almost a word more.
  static constexpr std::size_t kPageBytes = 8192;

  struct Block {
    std::int64_t first;
    std::uint32_t place;      // of its bytes: those of earlier pages, and before it in its page
    std::uint32_t num_bytes;  // of each value; 0: all values are `first`

    std::int64_t value(const std::byte* bytes, std::size_t i) const {
      std::uint64_t low;
      std::memcpy(&low, bytes + i * num_bytes, sizeof(low));
      const std::uint64_t mask = ~std::uint64_t{0} >> (64 - 8 * num_bytes);
      return static_cast<std::int64_t>((static_cast<std::uint64_t>(first) & ~mask) | (low & mask));
    }
  };
  const std::byte* bytes_of(const Block& block) const {
    return pages_[block.place / kPageBytes].get() + block.place % kPageBytes;
  }
  void pack(std::span<const std::int64_t, kBlock> values);
  std::byte* append(std::int64_t first, std::size_t num_bytes);

  std::array<std::int64_t, kBlock> last_;  // those of the last block, which is not full
  std::size_t size_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::shared_ptr<std::byte[]>> pages_;
  std::size_t num_left_ = 0;  // bytes of the last page
};

}  // namespace metronome
