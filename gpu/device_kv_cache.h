// The memory behind the block ids of core, on a GPU.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gpu/device_memory.h"

namespace metronome {

struct DeviceKvShape {
  std::int64_t n_layers = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t num_blocks = 0;
  std::int64_t block_size = 0;  // tokens; a slotted cache is the same with blocks of max_model_len

  // Elements of the keys (or values) of a layer.
  std::int64_t layer_elements() const { return num_blocks * n_kv_heads * block_size * head_dim; }
};

// [n_layers][keys, values][num_blocks][n_kv_heads][block_size][head_dim], bfloat16: the keys of one
// head in one block lie one behind the other.
class DeviceKvCache {
 public:
  // Throws CudaError when memory runs out.
  explicit DeviceKvCache(const DeviceKvShape& shape)
      : shape_(shape),
        memory_(static_cast<std::size_t>(2 * shape.n_layers * shape.layer_elements())) {}

  const DeviceKvShape& shape() const { return shape_; }
  __nv_bfloat16* keys(std::int64_t layer) const {
    return memory_.data() + 2 * layer * shape_.layer_elements();
  }
  __nv_bfloat16* values(std::int64_t layer) const { return keys(layer) + shape_.layer_elements(); }
  const DeviceArray<__nv_bfloat16>& memory() const { return memory_; }

 private:
  DeviceKvShape shape_;
  DeviceArray<__nv_bfloat16> memory_;
};

}  // namespace metronome
