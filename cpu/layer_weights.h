// SPDX-License-Identifier: Apache-2.0
// A model's weights as the forward pass uses them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/model/model_config.h"
#include "cpu/kernels.h"
#include "cpu/latent_attention.h"
#include "cpu/mixture.h"
#include "cpu/packed_matrix.h"
#include "cpu/thread_pool.h"
#include "models/weights/model_weights.h"

namespace metronome {

// Empty: the model lacks that norm.
struct NormWeights {
  std::vector<float> scale;  // [n], as multiplied
  std::vector<float> bias;   // [n]; empty = none
};

struct LinearWeights {
  PackedMatrix matrix;
  std::vector<float> bias;  // [num_outputs]; empty = none

  // out = x weights^T + bias, row by row. Uses the first inputs of each row of x. Resizes `out` to
  // [num_rows, num_outputs].
  void multiply(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                std::vector<float>& out, ThreadPool& pool) const;
};

struct MlpWeights {
  LinearWeights input;  // [2 * width, hidden_dim], gates first; [width, hidden_dim] without gates
  LinearWeights down;   // [hidden_dim, width]
  Xielu xielu;          // of the layer, if that is the activation
};

// Empty: the layer attends.
struct LinearAttentionWeights {
  // [conv_channels + value_dim + 2 * n_value_heads, hidden_dim]: queries, keys, values, the
  // output's gate, write strengths, decays.
  LinearWeights input;
  LinearWeights output;             // [hidden_dim, value_dim]
  std::vector<float> taps;          // [conv_width, conv_channels]
  std::vector<double> decay_rates;  // [n_value_heads]
  std::vector<float> decay_biases;  // [n_value_heads]
  std::vector<float> norm;          // [value_head_dim]

  bool is_empty() const { return taps.empty(); }
};

struct LayerWeights {
  bool is_window = false;
  bool is_rotated = true;
  // Of its kind: layers that attend, or layers with a state.
  std::int64_t number = 0;
  LinearAttentionWeights linear;
  LinearWeights qkv;     // [query_dim + 2 * kv_dim, hidden_dim]; behind it the gate's [query_dim]
  LatentWeights latent;  // in place of qkv
  std::vector<float> sinks;         // [n_heads]; empty = none
  LinearWeights attention_output;   // [hidden_dim, query_dim], or of the values of all heads
  RouterWeights router;             // empty in a dense layer
  std::vector<MlpWeights> mlps;     // one, or one for each expert
  MlpWeights shared_expert;         // for all tokens; empty without
  PackedMatrix shared_expert_gate;  // [1, hidden_dim]; empty without
  NormWeights attention_norm;       // [hidden_dim]
  NormWeights query_norm;           // [head_dim], or [query_dim] over all heads or for each
  NormWeights key_norm;             // [head_dim], or [kv_dim]
  NormWeights attention_post_norm;  // [hidden_dim]
  NormWeights mlp_norm;             // [hidden_dim]
  NormWeights mlp_post_norm;        // [hidden_dim]

  bool has_experts() const { return router.matrix.num_outputs() > 0; }
  bool has_shared_expert() const { return shared_expert.down.matrix.num_outputs() > 0; }
};

struct ModelWeights {
  PackedMatrix embedding;        // [vocab_size, hidden_dim]
  PackedMatrix positions;        // [max_position_embeddings, hidden_dim]; empty with RoPE
  PackedMatrix head;             // [vocab_size, hidden_dim]; empty with tied embeddings
  std::vector<float> head_bias;  // [vocab_size]; empty = none
  std::vector<LayerWeights> layers;
  NormWeights final_norm;  // [hidden_dim]

  std::int64_t num_bytes() const;  // of all matrices
};

// The values of a norm or a bias.
std::vector<float> read_row(const WeightSource& source, const WeightSpec& spec);

// Reads and packs the weights on all threads. Calls `poll` between layers, if it is not null.
// Throws the exceptions of `source`.
ModelWeights load_model_weights(const ModelConfig& model, const WeightSource& source,
                                ThreadPool& pool, const std::function<void()>& poll);

}  // namespace metronome
