// SPDX-License-Identifier: Apache-2.0
// Parts of a model that only some families have. Each is empty (all zero) in the others.
#pragma once

#include <cstdint>
#include <vector>

namespace metronome {

// Gated DeltaNet (Qwen3-Next, Qwen3.5): layers that keep one state per request instead of KV per
// token. Every key head serves n_value_heads / n_key_heads value heads.
struct LinearAttention {
  std::vector<std::int64_t> layers;  // ascending; the other layers attend
  std::int64_t n_key_heads = 0;
  std::int64_t n_value_heads = 0;
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_width = 0;  // positions that the causal convolution sees
  // Bytes of an element of the state, by the model's type and its config's mamba_ssm_dtype: as vLLM
  // keeps them with mamba_cache_dtype and mamba_ssm_cache_dtype auto. The CPU computes in float32.
  std::int64_t bytes_per_delta_element = 2;
  std::int64_t bytes_per_conv_element = 2;

  bool is_empty() const { return layers.empty(); }
  std::int64_t key_dim() const { return n_key_heads * key_head_dim; }
  std::int64_t value_dim() const { return n_value_heads * value_head_dim; }
  // Queries, keys and values go through the convolution, each channel by itself.
  std::int64_t conv_channels() const { return 2 * key_dim() + value_dim(); }
  // A request carries so many numbers from chunk to chunk in one layer: the delta rule's
  // [n_value_heads, key_head_dim, value_head_dim], and the last inputs of the convolution.
  std::int64_t delta_floats() const { return n_value_heads * key_head_dim * value_head_dim; }
  std::int64_t conv_floats() const { return (conv_width - 1) * conv_channels(); }

  bool operator==(const LinearAttention&) const = default;
};

// Multi-head latent attention (DeepSeek-V3): the cache has one vector of kv_rank + rope_dim numbers
// per token for all heads.
struct LatentAttention {
  std::int64_t kv_rank = 0;   // 0 = none
  std::int64_t q_rank = 0;    // 0 = queries are projected at once
  std::int64_t nope_dim = 0;  // of a query or key head, without RoPE
  std::int64_t rope_dim = 0;  // of a query or key head, with RoPE; keys share one
  std::int64_t value_dim = 0;

  bool is_empty() const { return kv_rank == 0; }
  std::int64_t cached_dim() const { return kv_rank + rope_dim; }

  bool operator==(const LatentAttention&) const = default;
};

// The vision tower of Qwen3-VL: patches through `depth` layers of full attention, then a merger of
// merge_size x merge_size patches to one embedding.
struct VisionTower {
  std::int64_t depth = 0;  // 0 = a text model
  std::int64_t hidden_dim = 0;
  std::int64_t n_heads = 0;
  std::int64_t ffn_dim = 0;
  std::int64_t in_channels = 3;
  std::int64_t patch_size = 0;
  std::int64_t temporal_patch_size = 0;
  std::int64_t merge_size = 0;
  std::int64_t out_dim = 0;        // = hidden_dim of the language model
  std::int64_t num_positions = 0;  // of the square table that is interpolated
  std::vector<std::int64_t>
      deepstack_layers;           // whose features the first text layers add, ascending
  std::int32_t image_token = -1;  // stands for one embedding
  std::int32_t start_token = -1;  // before and behind an image
  std::int32_t end_token = -1;

  bool is_empty() const { return depth == 0; }
  std::int64_t patch_inputs() const {
    return in_channels * temporal_patch_size * patch_size * patch_size;
  }
  // Vectors of an image token: its embedding, and one for each of deepstack_layers.
  std::int64_t features_per_token() const {
    return 1 + static_cast<std::int64_t>(deepstack_layers.size());
  }
  std::int64_t n_params() const;

  bool operator==(const VisionTower&) const = default;
};

}  // namespace metronome
