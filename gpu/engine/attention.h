// SPDX-License-Identifier: Apache-2.0
// Attention over the paged KV cache. Chooses the kernels that compute it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/model/model_config.h"
#include "gpu/engine/device_kv_cache.h"
#include "gpu/engine/device_memory.h"
#include "gpu/engine/pass_arrays.h"
#include "gpu/kernels/kernels.h"

namespace metronome {

AttentionShape attention_shape_of(const ModelConfig& model, bool is_window);

// Attention of one layer in one pass. The cache already holds its keys and values.
struct AttentionRows {
  std::int64_t layer = 0;
  bool is_window = false;
  const __nv_bfloat16* queries = nullptr;  // [num_tokens, n_heads * head_dim]
  __nv_bfloat16* out = nullptr;            // [num_tokens, n_heads * head_dim]
};

class Attention {
 public:
  // Allocates for at most max_items splits of decodes. If the cache has tensors, also for max_parts
  // tiles of prompts. Throws CudaError.
  Attention(const ModelConfig& model, std::int32_t max_items, std::int32_t max_parts);

  // Computes the chunks of prompts, then the decodes.
  void run(const PassArrays& arrays, const DeviceKvCache& kv, const AttentionRows& rows,
           cudaStream_t stream) const;

 private:
  const AttentionShape& shape(bool is_window) const { return is_window ? window_shape_ : shape_; }
  void attend_prompts(const PassArrays& arrays, const DeviceKvCache& kv, const PagedKv& paged,
                      const AttentionRows& rows, cudaStream_t stream) const;
  void attend_decodes(const PassArrays& arrays, const PagedKv& paged, const AttentionRows& rows,
                      cudaStream_t stream) const;

  AttentionShape shape_;
  AttentionShape window_shape_;
  std::int32_t max_parts_ = 0;
  std::int32_t decode_ctas_ = 0;
  DeviceArray<float> partials_;  // [max_items, decode_partial_floats()]; empty if not split
  DeviceArray<float> parts_;     // [max_parts, prefill_part_floats()]
};

}  // namespace metronome
