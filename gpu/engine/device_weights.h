// SPDX-License-Identifier: Apache-2.0
// A model's weights in the memory of a GPU, laid out for the kernels.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/engine/device_memory.h"
#include "gpu/engine/linear.h"
#include "models/weights/model_source.h"

namespace metronome {

// core/model/model_config.h defines the dimensions. A norm that the model lacks is empty.
struct DeviceLayer {
  bool is_window = false;
  Linear qkv;                                 // [(n_heads + 2 * n_kv_heads) * head_dim, hidden_dim]
  Linear output;                              // [hidden_dim, n_heads * head_dim]
  Linear gate_up;                             // [2 * ffn_dim, hidden_dim], gates first
  Linear down;                                // [hidden_dim, ffn_dim]
  DeviceArray<__nv_bfloat16> attention_norm;  // [hidden_dim]
  DeviceArray<__nv_bfloat16> query_norm;      // [head_dim]
  DeviceArray<__nv_bfloat16> key_norm;        // [head_dim]
  DeviceArray<__nv_bfloat16> attention_post_norm;  // [hidden_dim]
  DeviceArray<__nv_bfloat16> mlp_norm;             // [hidden_dim]
  DeviceArray<__nv_bfloat16> mlp_post_norm;        // [hidden_dim]
};

struct DeviceWeights {
  DeviceArray<__nv_bfloat16> embedding;   // [vocab_size, hidden_dim]
  Linear head;                            // [vocab_size, hidden_dim]; uses `embedding` if tied
  DeviceArray<__nv_bfloat16> final_norm;  // [hidden_dim]
  std::vector<DeviceLayer> layers;        // [n_layers]
  // Each row has cosines, then sines. `rope` is for layers without a window, `window_rope` for
  // those with one. Empty if the model has no such layer.
  DeviceArray<float> rope;         // [max_model_len, head_dim]
  DeviceArray<float> window_rope;  // [max_model_len, head_dim]
};

// Reads or draws the weights, and rounds them to bfloat16. Calls `poll` now and then. Throws
// ConfigError for files that cannot be read, CudaError if memory runs out.
DeviceWeights load_weights(const ModelSource& source, std::int64_t max_model_len,
                           const std::function<void()>& poll);

}  // namespace metronome
