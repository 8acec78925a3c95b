#include "cpu/kv_store.h"

#include <algorithm>
#include <new>

#include "core/base/error.h"
#include "cpu/kernels.h"

namespace metronome {
namespace {

std::int64_t tiles_of_block(const KvShape& shape) { return ceil_div(shape.block_size, kLanes); }

// The floats of a tile's keys and values: a multiple of 64 bytes.
std::int64_t tile_size(const KvShape& shape) { return 2 * kLanes * shape.head_dim; }

}  // namespace

KvStore::KvStore(const KvShape& shape)
    : shape_(shape),
      tiles_per_block_(static_cast<std::int32_t>(tiles_of_block(shape))),
      memory_(num_bytes(shape), MappedMemory::Pages::Small) {}

std::size_t KvStore::num_bytes(const KvShape& shape) {
  std::size_t bytes = sizeof(float);
  for (const std::int64_t factor : {shape.n_layers, shape.num_blocks, shape.n_kv_heads,
                                    tiles_of_block(shape), tile_size(shape)}) {
    METRONOME_CHECK(factor >= 0, "a negative size");
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(factor), &bytes)) {
      throw std::bad_alloc();
    }
  }
  return bytes;
}

float* KvStore::tile_base(std::int64_t layer, BlockId block, std::int64_t head,
                          std::int32_t tile) const {
  const auto id = static_cast<std::int64_t>(index(block));
  METRONOME_CHECK(layer >= 0 && layer < shape_.n_layers && id >= 0 && id < shape_.num_blocks &&
                      head >= 0 && head < shape_.n_kv_heads && tile >= 0 && tile < tiles_per_block_,
                  "a tile outside the KV store");
  const std::int64_t number =
      ((layer * shape_.num_blocks + id) * shape_.n_kv_heads + head) * tiles_per_block_ + tile;
  return memory_.as<float>() + number * tile_size(shape_);
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
