// SPDX-License-Identifier: Apache-2.0
#include "cpu/kv_store.h"

#include <algorithm>
#include <initializer_list>
#include <new>

#include "core/base/error.h"
#include "cpu/kernels.h"

namespace metronome {
namespace {

std::int64_t tiles_of_block(const KvShape& shape) { return ceil_div(shape.block_size, kLanes); }

// The floats of a tile's keys and values: a multiple of 64 bytes.
std::int64_t tile_size(const KvShape& shape) { return 2 * kLanes * shape.head_dim; }

// The floats of a block in one layer.
std::int64_t page_floats(const KvShape& shape) {
  const std::int64_t kv = shape.n_kv_heads * tiles_of_block(shape) * tile_size(shape);
  if (shape.num_state_groups == 0) return kv;
  return std::max(kv, ceil_div(shape.state_floats, kLanes) * kLanes);
}

std::size_t float_bytes(std::initializer_list<std::int64_t> factors) {
  std::size_t bytes = sizeof(float);
  for (const std::int64_t factor : factors) {
    METRONOME_CHECK(factor >= 0, "a negative size");
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(factor), &bytes)) {
      throw std::bad_alloc();
    }
  }
  return bytes;
}

std::size_t block_bytes(const KvShape& shape) {
  // Its own factors, as their product may overflow.
  if (shape.num_state_groups == 0) {
    return float_bytes({shape.n_layers, shape.num_blocks, shape.n_kv_heads, tiles_of_block(shape),
                        tile_size(shape)});
  }
  return float_bytes({shape.n_layers, shape.num_blocks, page_floats(shape)});
}

std::size_t slot_bytes(const KvShape& shape) {
  return float_bytes({shape.n_state_layers, shape.num_state_slots, shape.state_floats});
}

}  // namespace

KvShape kv_shape(const ModelConfig& model, const KvCacheLayout& layout,
                 std::int64_t num_state_slots) {
  const LinearAttention& linear = model.linear_attention;
  const LatentAttention& latent = model.latent_attention;
  KvShape shape = {.n_layers = model.n_attention_layers(),
                   .n_kv_heads = latent.is_empty() ? model.n_kv_heads : 1,
                   .head_dim = latent.is_empty() ? model.head_dim : latent.cached_dim(),
                   .num_blocks = layout.num_blocks,
                   .block_size = layout.block_size,
                   .n_state_layers = model.n_linear_layers(),
                   .state_floats = linear.delta_floats() + linear.conv_floats(),
                   .num_state_groups = layout.states.num_groups,
                   .caches_states = layout.states.caches_states};
  if (linear.is_empty()) return shape;
  if (shape.num_state_groups == 0) {
    shape.num_state_slots = num_state_slots;
  } else {
    shape.n_layers = std::max(shape.n_layers, shape.layers_per_state_group());
  }
  return shape;
}

KvStore::KvStore(const KvShape& shape)
    : shape_(shape),
      tiles_per_block_(static_cast<std::int32_t>(tiles_of_block(shape))),
      memory_(block_bytes(shape), MappedMemory::Pages::Small),
      slots_(slot_bytes(shape), MappedMemory::Pages::Small) {}

std::size_t KvStore::num_bytes(const KvShape& shape) {
  return block_bytes(shape) + slot_bytes(shape);
}

float* KvStore::state(std::int64_t state_layer, BlockId id) const {
  const auto number = static_cast<std::int64_t>(index(id));
  METRONOME_CHECK(state_layer >= 0 && state_layer < shape_.n_state_layers, "a layer with a state");
  if (shape_.num_state_groups == 0) {
    METRONOME_CHECK(number < shape_.num_state_slots, "a slot outside the KV store");
    return slots_.as<float>() +
           (state_layer * shape_.num_state_slots + number) * shape_.state_floats;
  }
  METRONOME_CHECK(number < shape_.num_blocks, "a block outside the KV store");
  const std::int64_t layer = state_layer % shape_.layers_per_state_group();
  return memory_.as<float>() + (layer * shape_.num_blocks + number) * page_floats(shape_);
}

float* KvStore::tile_base(std::int64_t layer, BlockId block, std::int64_t head,
                          std::int32_t tile) const {
  const auto id = static_cast<std::int64_t>(index(block));
  METRONOME_CHECK(layer >= 0 && layer < shape_.n_layers && id >= 0 && id < shape_.num_blocks &&
                      head >= 0 && head < shape_.n_kv_heads && tile >= 0 && tile < tiles_per_block_,
                  "a tile outside the KV store");
  return memory_.as<float>() + (layer * shape_.num_blocks + id) * page_floats(shape_) +
         (head * tiles_per_block_ + tile) * tile_size(shape_);
}

const float* KvStore::key_tile(std::int64_t layer, BlockId block, std::int64_t head,
                               std::int32_t tile) const {
  return tile_base(layer, block, head, tile);
}

const float* KvStore::value_tile(std::int64_t layer, BlockId block, std::int64_t head,
                                 std::int32_t tile) const {
  return tile_base(layer, block, head, tile) + kLanes * shape_.head_dim;
}

void KvStore::write(std::int64_t layer, BlockId block, std::int32_t offset, std::int64_t head,
                    const float* key, const float* value) {
  METRONOME_CHECK(offset >= 0 && offset < shape_.block_size, "a token outside its block");
  const auto lanes = static_cast<std::int32_t>(kLanes);
  float* const keys = tile_base(layer, block, head, offset / lanes) + offset % lanes;
  for (std::int64_t d = 0; d < shape_.head_dim; ++d) keys[d * kLanes] = key[d];
  float* const values =
      tile_base(layer, block, head, offset / lanes) + (kLanes + offset % lanes) * shape_.head_dim;
  std::copy_n(value, shape_.head_dim, values);
}

void KvStore::read(std::int64_t layer, BlockId block, std::int32_t offset, std::int64_t head,
                   float* key, float* value) const {
  METRONOME_CHECK(offset >= 0 && offset < shape_.block_size, "a token outside its block");
  const auto lanes = static_cast<std::int32_t>(kLanes);
  const float* const keys = key_tile(layer, block, head, offset / lanes) + offset % lanes;
  for (std::int64_t d = 0; d < shape_.head_dim; ++d) key[d] = keys[d * kLanes];
  const float* const values =
      value_tile(layer, block, head, offset / lanes) + offset % lanes * shape_.head_dim;
  std::copy_n(values, shape_.head_dim, value);
}

}  // namespace metronome
