// The memory of the core's KV blocks: keys and values of every layer, in float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/types.h"
#include "cpu/mapped_memory.h"

namespace metronome {

struct KvShape {
  std::int64_t n_layers = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t num_blocks = 0;
  std::int32_t block_size = 0;  // tokens; a slotted cache has blocks of max_model_len
};

// A block is divided into tiles of 16 slots, the last one padded. So a position's offset in its
// block determines its tile and lane. A tile's keys are [head_dim, 16], its values [16, head_dim].
// Pages that were never written take no memory.
class KvStore {
 public:
  explicit KvStore(const KvShape& shape);  // throws std::bad_alloc

  const KvShape& shape() const { return shape_; }
  std::int32_t tiles_per_block() const { return tiles_per_block_; }
  static std::size_t num_bytes(const KvShape& shape);

  // [head_dim, 16]
  const float* key_tile(std::int64_t layer, BlockId block, std::int64_t head,
                        std::int32_t tile) const;
  // [16, head_dim]
  const float* value_tile(std::int64_t layer, BlockId block, std::int64_t head,
                          std::int32_t tile) const;

  // Stores `key` and `value`, [head_dim] each, for the token at `offset` of a block.
  void write(std::int64_t layer, BlockId block, std::int32_t offset, std::int64_t head,
             const float* key, const float* value);
  // Reads a token's key and value, [head_dim] each.
  void read(std::int64_t layer, BlockId block, std::int32_t offset, std::int64_t head, float* key,
            float* value) const;

 private:
  // [2 * 16 * head_dim]: the keys, then the values.
  float* tile_base(std::int64_t layer, BlockId block, std::int64_t head, std::int32_t tile) const;

  KvShape shape_;
  std::int32_t tiles_per_block_ = 0;
  // float32 [n_layers, num_blocks, n_kv_heads, tiles_per_block_, 2 * 16 * head_dim]
  MappedMemory memory_;
};

}  // namespace metronome
