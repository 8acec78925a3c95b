// SPDX-License-Identifier: Apache-2.0
// The GPU memory that core's block ids refer to.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <vector>

#include "gpu/engine/device_memory.h"
#include "gpu/kernels/kv_tensors.h"

namespace metronome {

struct DeviceKvShape {
  std::int64_t n_layers = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t num_blocks = 0;
  std::int64_t block_size = 0;  // tokens; in a slotted cache, max_model_len

  // Elements of one layer's keys (or values).
  std::int64_t layer_elements() const { return num_blocks * n_kv_heads * block_size * head_dim; }
  bool operator==(const DeviceKvShape&) const = default;
};

// The tensors of one layer's keys and values. Throws CudaError if the driver has no tensor maps or
// refuses one. Requires can_attend_by_wgmma, and fewer than 2^31 rows.
KvTensors make_kv_tensors(const __nv_bfloat16* keys, const __nv_bfloat16* values,
                          const DeviceKvShape& shape);

// Keys and values of all layers, in bfloat16. The keys of one head in one block are contiguous.
class DeviceKvCache {
 public:
  // `has_tensors` adds tensors for launch_wgmma_attention. Throws CudaError if memory runs out, and
  // as make_kv_tensors does.
  explicit DeviceKvCache(const DeviceKvShape& shape, bool has_tensors = false);

  const DeviceKvShape& shape() const { return shape_; }
  // [num_blocks, n_kv_heads, block_size, head_dim]
  __nv_bfloat16* keys(std::int64_t layer) const {
    return memory_.data() + 2 * layer * shape_.layer_elements();
  }
  // Has the same shape.
  __nv_bfloat16* values(std::int64_t layer) const { return keys(layer) + shape_.layer_elements(); }
  // Null without tensors.
  const KvTensors* tensors(std::int64_t layer) const {
    return tensors_.empty() ? nullptr : &tensors_[static_cast<std::size_t>(layer)];
  }
  const DeviceArray<__nv_bfloat16>& memory() const { return memory_; }

 private:
  DeviceKvShape shape_;
  // [n_layers, 2, num_blocks, n_kv_heads, block_size, head_dim]: in each layer keys, then values.
  DeviceArray<__nv_bfloat16> memory_;
  std::vector<KvTensors> tensors_;  // [n_layers], or empty
};

}  // namespace metronome
