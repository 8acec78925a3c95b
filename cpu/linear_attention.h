// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet: the layers of Qwen3-Next and Qwen3.5 that keep a state in place of keys and
// values. Formulas: transformers' modeling_qwen3_next.py, Qwen3NextGatedDeltaNet.
//
// The rule is applied token by token, so every sum's order depends on a token's own place in its
// sequence. The bits of outputs and states are the same for every chunk, batch and thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model_config.h"
#include "core/run/forward_batch.h"
#include "cpu/kernels.h"
#include "cpu/kv_store.h"
#include "cpu/layer_weights.h"
#include "cpu/thread_pool.h"

namespace metronome {

class LinearAttentionLayer {
 public:
  // `model` and `pool` outlive it.
  LinearAttentionLayer(const ModelConfig& model, ThreadPool& pool);

  // Tokens [begin, end) of a batch.
  struct Tokens {
    std::int32_t begin = 0;
    std::int32_t end = 0;
  };
  // Computes some tokens of a batch in one layer, before its output projection. `projected` is
  // [end - begin, weights.input.matrix.num_outputs()]: what the input projections made of them.
  // `state_layer` counts the layers with states. Reads each sequence's state where the batch says,
  // or begins with zeros, and writes it where the batch says. Tokens of a sequence that come in
  // several calls come in order. `out` is [end - begin, value_dim].
  void run(const LinearAttentionWeights& weights, std::int64_t state_layer,
           const ForwardBatch& batch, Tokens tokens, const float* projected, const KvStore& kv,
           float* out);

 private:
  // Tokens of one sequence.
  struct Part {
    std::int32_t begin = 0;
    std::int32_t end = 0;
    float* state = nullptr;        // [n_value_heads, key_head_dim, value_head_dim]
    float* conv_inputs = nullptr;  // [conv_width - 1, conv_channels], the last ones before `begin`
  };

  void find_parts(std::int64_t state_layer, const ForwardBatch& batch, Tokens tokens,
                  const KvStore& kv);
  void mix_row(const LinearAttentionWeights& weights, const Part& part, std::int32_t token,
               std::int32_t first_token, const float* projected);
  void keep_inputs(const Part& part, std::int32_t first_token, const float* projected);
  void apply_rule(const Part& part, std::int32_t first_token, std::int64_t head, float* out);
  void gate_row(const LinearAttentionWeights& weights, const float* gate, float* out) const;
  std::int64_t projected_dim() const {
    return linear_.conv_channels() + linear_.value_dim() + 2 * linear_.n_value_heads;
  }

  const LinearAttention& linear_;
  ThreadPool& pool_;
  const Kernels& kernels_;
  float norm_eps_;
  std::vector<float> query_scale_;  // [key_head_dim]
  std::vector<float> key_scale_;    // [key_head_dim]
  std::vector<Part> parts_;
  std::vector<float> mixed_;  // [rows, conv_channels]: queries, keys and values
  std::vector<float> gates_;  // [rows, 2 * n_value_heads]: decays, write strengths
};

}  // namespace metronome
