// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) in its absorbed form. The cache has
// one vector per token for all heads: the normalised latent of keys and values, and a key that is
// rotated. A head's key would be K times the latent, its value V times the latent. So its query is
// multiplied by K's transpose once, and what it attends to by V.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/model/model_config.h"
#include "cpu/kernels.h"
#include "cpu/packed_matrix.h"
#include "cpu/rope_table.h"
#include "cpu/thread_pool.h"
#include "models/weights/model_weights.h"

namespace metronome {

// Empty: the layer has keys and values of its own.
struct LatentWeights {
  // [q_rank or query_dim, and behind it kv_rank + rope_dim; hidden_dim]
  PackedMatrix input;
  std::vector<float> query_norm;     // [q_rank]; empty without
  PackedMatrix queries;              // [query_dim, q_rank]; empty without
  std::vector<float> latent_norm;    // [kv_rank]
  std::vector<PackedMatrix> keys;    // [n_heads] of [kv_rank, nope_dim]: K's transposes
  std::vector<PackedMatrix> values;  // [n_heads] of [value_dim, kv_rank]

  bool is_empty() const { return keys.empty(); }
  std::int64_t num_bytes() const;
};

// Reads the weights of a layer. Throws the exceptions of `source`.
LatentWeights load_latent_weights(const ModelConfig& model, const WeightSource& source,
                                  std::int64_t layer, ThreadPool& pool);

// The parts of a layer before and behind attention. Rows do not depend on each other.
class LatentAttentionLayer {
 public:
  // The model and the pool outlive it.
  LatentAttentionLayer(const ModelConfig& model, ThreadPool& pool);

  // Queries and the vectors to cache of x, [num_rows, hidden_dim]. `position_of(row)` is a row's.
  void prepare(const LatentWeights& weights, const float* x, std::int64_t num_rows,
               const RopeTable& rope, const std::function<std::int32_t(std::int64_t)>& position_of,
               float query_scale);

  // [n_heads, cached_dim()] of a row, scaled.
  const float* queries(std::int64_t row) const { return absorbed_.data() + row * width(); }
  // [cached_dim()] of a row.
  const float* cached(std::int64_t row) const;
  // Room for what the heads of a row attend to, [n_heads, cached_dim()]. Its rotated part means
  // nothing.
  float* attended(std::int64_t row) { return attended_.data() + row * width(); }
  // The values of all heads, [num_rows, n_heads * value_dim].
  const float* project_values(const LatentWeights& weights, std::int64_t num_rows);

 private:
  std::int64_t width() const { return model_.n_heads * model_.latent_attention.cached_dim(); }
  std::int64_t input_dim() const;
  void absorb_queries(const LatentWeights& weights, std::int64_t num_rows, float query_scale);

  const ModelConfig& model_;
  ThreadPool& pool_;
  const Kernels& kernels_;
  std::vector<float> input_;     // [num_rows, input_dim()]
  std::vector<float> full_;      // [num_rows, query_dim], with q_rank
  std::vector<float> absorbed_;  // [num_rows, n_heads, cached_dim]
  std::vector<float> attended_;  // the same
  std::vector<float> values_;    // [num_rows, n_heads, value_dim]
};

}  // namespace metronome
