// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/device_kv_cache.h"

#include "core/base/error.h"
#include "gpu/kernels/tensor_map.h"

namespace metronome {
KvTensors make_kv_tensors(const __nv_bfloat16* keys, const __nv_bfloat16* values,
                          const DeviceKvShape& shape) {
  const auto head_dim = static_cast<std::int32_t>(shape.head_dim);
  const auto block_size = static_cast<std::int32_t>(shape.block_size);
  METRONOME_CHECK(can_attend_by_wgmma(head_dim, block_size), "boxes of eight rows at least");
  const std::int64_t num_rows = shape.num_blocks * shape.n_kv_heads * shape.block_size;
  METRONOME_CHECK(num_rows < std::int64_t{INT32_MAX}, "rows of tensors are 32-bit numbers");
  const std::int32_t box_rows = kv_box_rows(head_dim, block_size);
  return {.keys = row_tensor(keys, num_rows, shape.head_dim, box_rows),
          .values = row_tensor(values, num_rows, shape.head_dim, box_rows),
          .num_rows = static_cast<std::int32_t>(num_rows),
          .box_rows = box_rows};
}

DeviceKvCache::DeviceKvCache(const DeviceKvShape& shape, bool has_tensors)
    : shape_(shape),
      memory_(static_cast<std::size_t>(2 * shape.n_layers * shape.layer_elements())) {
  for (std::int64_t layer = 0; has_tensors && layer < shape.n_layers; ++layer) {
    tensors_.push_back(make_kv_tensors(keys(layer), values(layer), shape));
  }
}

}  // namespace metronome
