// SPDX-License-Identifier: Apache-2.0
// Simulates how the thread blocks of an attention kernel fill the multiprocessors of a GPU. Tables
// of equal lengths give the time of an average step. A step with unequal sequences or several
// prompts takes longer in proportion to how badly its blocks fill the device.
//
// Each head processes each sequence's keys in its own block, 128 keys per tile. A prompt chunk has
// one block per 64 queries. Blocks start in order as multiprocessors become free. A tile takes
// `tile_us` while memory bandwidth suffices. All blocks together finish at most one tile per
// `busy_tile_us` divided by the number of multiprocessors. This is FlashAttention 2 on a paged
// cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace metronome {

constexpr double kTileKeys = 128;
constexpr double kTileQueries = 64;
constexpr std::int64_t kMaxMultiprocessors = 4096;

struct BlockTimes {
  double launch_us = 0;     // of the kernel, once
  double tile_us = 0;       // one block's tile on an otherwise idle device
  double busy_tile_us = 0;  // each block's tile while every multiprocessor has a block
  double block_tiles = 0;   // the cost of starting and ending a block, in tiles
  // A block without work: a launch has as many blocks per head and sequence as its longest chunk.
  double empty_block_us = 0;

  bool operator==(const BlockTimes&) const = default;
};

// One launch. Blocks are added in order; every head runs all of them. The scratch memory grows with
// the largest launch and is kept.
class BlockLaunch {
 public:
  explicit BlockLaunch(std::int64_t num_multiprocessors);

  void clear();
  void add_decode(double context);
  void add_chunk(double tokens, double history);

  // Microseconds of the launch for `heads` copies of its blocks. Deterministic: lengths are rounded
  // to at most 1/256 of the longest.
  double time_us(std::int64_t heads, const BlockTimes& times);

 private:
  double filled_us(std::int64_t heads, const BlockTimes& times);

  std::int64_t num_multiprocessors_;
  std::vector<double> keys_;             // of each block of one head
  std::vector<std::uint32_t> lengths_;   // the same plus the cost of a block, rounded
  std::vector<std::uint16_t> num_ends_;  // by instant, modulo the ring: the blocks that end then
  std::int64_t num_sequences_ = 0;
  double most_tokens_ = 0;  // of a sequence
};

// `num_blocks` blocks with the same number of keys, without rounding.
double equal_blocks_us(std::int64_t num_blocks, double keys, std::int64_t num_multiprocessors,
                       const BlockTimes& times);

// Below this many blocks FlashAttention 2 splits a context over several blocks. The limit is 0.8 of
// the blocks that the device runs at once, two per multiprocessor.
double split_limit_blocks(std::int64_t num_multiprocessors);

}  // namespace metronome
