// How the thread blocks of an attention kernel fill the multiprocessors of a GPU. Tables of equal
// lengths say what an average step takes; a step whose sequences differ in length, or that computes
// several prompts, takes as much longer as its blocks fill the device worse.
//
// Each head walks each sequence's keys in a block of its own, 128 keys a tile; a chunk of a prompt
// has one block per 64 queries. Blocks start in order as multiprocessors come free. A tile takes
// `tile_us` while memory keeps up; all blocks together make at most one tile per `busy_tile_us`
// divided by the number of multiprocessors. This is FlashAttention 2 on a paged cache.
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
  double tile_us = 0;       // a tile of one block on an otherwise idle device
  double busy_tile_us = 0;  // a tile of each block while every multiprocessor has one
  double block_tiles = 0;   // what starting and ending a block costs, in tiles
  // A block with nothing to do: a launch has as many per head and sequence as its longest chunk.
  double empty_block_us = 0;

  bool operator==(const BlockTimes&) const = default;
};

// One launch: blocks are added in order, every head runs all of them. Holds scratch memory, which
// grows with the largest launch and is kept.
class BlockLaunch {
 public:
  explicit BlockLaunch(std::int64_t num_multiprocessors);

  void clear();
  void add_decode(double context);
  void add_chunk(double tokens, double history);

  // Microseconds of the launch for `heads` copies of its blocks. Deterministic: lengths are rounded
  // to 1/256 or less of the longest.
  double time_us(std::int64_t heads, const BlockTimes& times);

 private:
  double filled_us(std::int64_t heads, const BlockTimes& times);

  std::int64_t num_multiprocessors_;
  std::vector<double> keys_;             // of each block of one head
  std::vector<std::uint32_t> lengths_;   // the same with what a block costs, rounded
  std::vector<std::uint16_t> num_ends_;  // by instant, modulo the ring: blocks that end then
  std::int64_t num_sequences_ = 0;
  double most_tokens_ = 0;  // of a sequence
};

// `num_blocks` blocks of the same number of keys, without their rounding.
double equal_blocks_us(std::int64_t num_blocks, double keys, std::int64_t num_multiprocessors,
                       const BlockTimes& times);

// Below this many blocks FlashAttention 2 splits contexts over several: less than 0.8 of what the
// device runs at once, two per multiprocessor.
double split_limit_blocks(std::int64_t num_multiprocessors);

}  // namespace metronome
