// A model's weights in the memory of a GPU, laid out for the kernels.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/computed_run.h"
#include "gpu/device_memory.h"

namespace metronome {

struct DeviceLayer {
  bool is_window = false;
  DeviceArray<__nv_bfloat16> qkv;      // [(n_heads + 2 n_kv_heads) * head_dim][hidden_dim]
  DeviceArray<__nv_bfloat16> output;   // [hidden_dim][n_heads * head_dim]
  DeviceArray<__nv_bfloat16> gate_up;  // [2 * ffn_dim][hidden_dim], gates first
  DeviceArray<__nv_bfloat16> down;     // [hidden_dim][ffn_dim]
  DeviceArray<__nv_bfloat16> attention_norm, mlp_norm;            // [hidden_dim]
  DeviceArray<__nv_bfloat16> attention_post_norm, mlp_post_norm;  // empty where there are none
  DeviceArray<__nv_bfloat16> query_norm, key_norm;                // [head_dim], likewise
};

struct DeviceWeights {
  DeviceArray<__nv_bfloat16> embedding;  // [vocab_size][hidden_dim]
  DeviceArray<__nv_bfloat16> own_head;   // empty with tied embeddings
  DeviceArray<__nv_bfloat16> final_norm;
  std::vector<DeviceLayer> layers;
  // [max_model_len][head_dim]: cosines, then sines; of the layers without and with a window. Empty
  // where there are none of the kind.
  DeviceArray<float> rope;
  DeviceArray<float> window_rope;

  const __nv_bfloat16* head() const {
    return own_head.size() > 0 ? own_head.data() : embedding.data();
  }
};

// Reads or draws the weights; values that are not bfloat16 are rounded. Calls `poll` now and then.
// Throws ConfigError for files that cannot be read, CudaError when memory runs out.
DeviceWeights load_weights(const ModelSource& source, std::int64_t max_model_len,
                           const std::function<void()>& poll);

}  // namespace metronome
