// SPDX-License-Identifier: Apache-2.0
// The memory of the core's KV blocks: keys and values of every layer that attends, and recurrent
// states, in float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/types.h"
#include "core/engine/kv/kv_cache.h"
#include "core/model/model_config.h"
#include "cpu/mapped_memory.h"

namespace metronome {

struct KvShape {
  std::int64_t n_layers = 0;  // of a block: those that attend, or of a group with states, if more
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t num_blocks = 0;
  std::int32_t block_size = 0;  // tokens; a slotted cache has blocks of max_model_len
  // Recurrent states: layers that have one, and the floats of each. With groups (KvCacheLayout's
  // states) a block holds the states of a group's layers in place of KV. Without, each of
  // num_state_slots requests has its states beside the blocks.
  std::int64_t n_state_layers = 0;
  std::int64_t state_floats = 0;
  std::int32_t num_state_groups = 0;
  std::int64_t num_state_slots = 0;
  bool caches_states = false;  // with groups: StateLayout's

  std::int64_t layers_per_state_group() const {
    return num_state_groups == 0 ? n_state_layers : ceil_div(n_state_layers, num_state_groups);
  }
};

// The shape of a model's blocks and states. With latent attention, one head has the cached vector
// as its key and as its value: in the order that scores need, and in that of weighted sums.
KvShape kv_shape(const ModelConfig& model, const KvCacheLayout& layout,
                 std::int64_t num_state_slots);

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

  // The state of a layer (numbered among those that have one), [state_floats]. Requires the block
  // or the slot that holds the state of its group.
  float* state(std::int64_t state_layer, BlockId id) const;

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
  // float32 [n_layers, num_blocks, page]. A page is [n_kv_heads, tiles_per_block_,
  // 2 * 16 * head_dim], padded for a state where blocks hold states.
  MappedMemory memory_;
  MappedMemory slots_;  // float32 [n_state_layers, num_state_slots, state_floats]
};

}  // namespace metronome
