// A growing column of integers in few bits. Any value is read in constant time.
//
// Values are stored in blocks: the smallest value of the block, and for each value the difference
// to it in as many bits as the largest difference needs. So a column that rarely changes takes
// about a bit a value, and one of ascending times the bits of a block's time span.
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

  void push_back(std::int64_t value) {
    last_[size_ % kBlock] = value;
    if (++size_ % kBlock == 0) pack(last_);
  }

  // Appends a block of values at once. Requires that those before fill whole blocks.
  void append_block(std::span<const std::int64_t, kBlock> values) {
    size_ += kBlock;
    pack(values);
  }

  std::size_t size() const { return size_; }
  // Requires i < size().
  std::int64_t operator[](std::size_t i) const {
    const std::size_t block = i / kBlock;
    if (block == blocks_.size()) return last_[i % kBlock];
    const Block& packed = blocks_[block];
    return packed.value(i % kBlock);
  }
  // Values [block * kBlock, ...) up to the block's end or the last value; `out` has room for them.
  void read_block(std::size_t block, std::span<std::int64_t, kBlock> out) const;

  // Bytes of heap memory.
  std::size_t num_bytes() const;

 private:
  static_assert(std::endian::native == std::endian::little, "words are read as bytes");
  static constexpr std::uint32_t kMaxNarrow = 57;  // bits in eight bytes, from any bit of the first
  // Words of blocks lie in pages, none of which moves. Each has a word more, which is read only.
  static constexpr std::size_t kPageWords = 1024;

  struct Block {
    std::int64_t least;
    const std::uint64_t* words;
    std::uint32_t num_bits;  // of each difference; 0: all values are `least`

    std::int64_t value(std::size_t i) const {
      if (num_bits == 0) return least;
      return num_bits <= kMaxNarrow ? narrow(i) : wide(i);
    }
    // The eight bytes that begin with the difference's first bit have all of it. The last of them
    // may lie behind the block.
    std::int64_t narrow(std::size_t i) const {
      const std::size_t bit = i * num_bits;
      std::uint64_t bits;
      std::memcpy(&bits, reinterpret_cast<const char*>(words) + bit / 8, sizeof(bits));
      return after_least(bits >> bit % 8 & ((std::uint64_t{1} << num_bits) - 1));
    }
    std::int64_t wide(std::size_t i) const {
      const std::size_t bit = i * num_bits;
      const std::uint64_t* word = words + bit / 64;
      const std::size_t shift = bit % 64;
      std::uint64_t difference = word[0] >> shift;
      if (shift + num_bits > 64) difference |= word[1] << (64 - shift);
      if (num_bits < 64) difference &= (std::uint64_t{1} << num_bits) - 1;
      return after_least(difference);
    }
    std::int64_t after_least(std::uint64_t difference) const {
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(least) + difference);
    }
  };
  void pack(std::span<const std::int64_t, kBlock> values);
  std::uint64_t* words(std::size_t num_words);

  std::array<std::int64_t, kBlock> last_;  // those of the last block, which is not full
  std::size_t size_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::unique_ptr<std::uint64_t[]>> pages_;
  std::size_t page_words_ = kPageWords;  // taken of the last page
};

}  // namespace metronome
