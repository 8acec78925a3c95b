// SPDX-License-Identifier: Apache-2.0
// Executes a decoder-only transformer, with ragged batches and a paged KV cache. core/model's
// model_traits.h says what its layers may be made of.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/model/model_config.h"
#include "core/run/forward_batch.h"
#include "cpu/attention_arrays.h"
#include "cpu/kernels.h"
#include "cpu/kv_store.h"
#include "cpu/latent_attention.h"
#include "cpu/layer_weights.h"
#include "cpu/linear_attention.h"
#include "cpu/mixture.h"
#include "cpu/rope_table.h"
#include "cpu/thread_pool.h"
#include "models/weights/model_weights.h"

namespace metronome {

// The logits and the KV of a token depend only on the tokens up to it, to the bit. They do not
// depend on the chunk, the other sequences, the cache layout or the threads.
class Transformer {
 public:
  // Called repeatedly during long operations; an exception from it ends the operation.
  using PollFn = std::function<void()>;

  // Reads and packs the weights. `pool` outlives the model. Throws ConfigError "key: what; what is
  // allowed" for an unsupported model, and the exceptions of `weights`.
  Transformer(const ModelConfig& model, const WeightSource& weights, ThreadPool& pool,
              const PollFn& poll = {});

  const ModelConfig& model() const { return model_; }
  std::int64_t weight_bytes() const { return weights_.num_bytes(); }

  // One forward pass. Writes the keys and values of the batch's tokens and the sequences' states
  // into `kv`, and the logits of batch.logit_tokens to `logits`, [num_logit_tokens, vocab_size].
  // Requires token ids below vocab_size and block ids of `kv`.
  void forward(const ForwardBatch& batch, KvStore& kv, std::vector<float>& logits,
               const PollFn& poll = {});

 private:
  // Tokens [begin, end) of a batch that go through a layer together.
  struct Tile {
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::int32_t num_tokens() const { return end - begin; }
  };
  // Query tokens [begin, end) of one sequence against one KV head, with the query heads
  // [first_head, end_head) of that KV head.
  struct AttentionItem {
    std::int32_t sequence;
    std::int32_t head;
    std::int32_t first_head;
    std::int32_t end_head;
    std::int32_t begin;
    std::int32_t end;
  };
  // Heads of a tile's rows, as attention reads and writes them.
  struct HeadRows {
    const float* queries;  // [tile_tokens, n_heads, head_dim]
    std::int64_t query_stride;
    float* outputs;  // [tile_tokens, n_heads, head_dim]
    std::int64_t output_stride;
    std::int64_t head_dim;
    std::int64_t n_kv_heads;
  };
  void embed(const ForwardBatch& batch);
  void embed_images(const ForwardBatch& batch);
  void add_image_features(const ForwardBatch& batch, std::int64_t layer);
  void mix_angles(const ForwardBatch& batch);
  void run_layer(const LayerWeights& layer, const ForwardBatch& batch, Tile tile, KvStore& kv);
  void run_attention(const LayerWeights& layer, const ForwardBatch& batch, Tile tile, KvStore& kv);
  void run_linear_attention(const LayerWeights& layer, const ForwardBatch& batch, Tile tile,
                            KvStore& kv);
  void run_latent_attention(const LayerWeights& layer, const ForwardBatch& batch, Tile tile,
                            KvStore& kv);
  HeadRows head_rows(const LayerWeights& layer);
  void gate_attended(std::int64_t num_rows);
  void make_room(std::int64_t num_rows);
  const float* normalise(const NormWeights& norm, Tile tile);
  // By the norm's scales and biases from `first` on.
  void apply_norm(const NormWeights& norm, const float* x, std::int64_t n, float* out,
                  std::int64_t first = 0) const;
  void normalise_heads(const NormWeights& norm, std::int64_t num_heads, float* heads) const;
  void turn_heads(const LayerWeights& layer, const float* cos, const float* sin,
                  float* query) const;
  void place_heads(const LayerWeights& layer, const ForwardBatch& batch, Tile tile, KvStore& kv);
  void attend(const LayerWeights& layer, const ForwardBatch& batch, Tile tile, const KvStore& kv);
  void split_items(int num_threads);
  void attend_item(const LayerWeights& layer, const HeadRows& heads, const ForwardBatch& batch,
                   Tile tile, const KvStore& kv, const AttentionItem& item,
                   AttentionArrays& arrays);
  void run_mlp(const MlpWeights& mlp, const float* x, std::int64_t num_rows,
               std::vector<float>& out);
  void run_experts(const LayerWeights& layer, const float* x, std::int64_t num_rows,
                   std::vector<float>& out);
  void add_shared_expert(const LayerWeights& layer, const float* x, std::int64_t num_rows,
                         std::vector<float>& out);
  void activate(const MlpWeights& mlp, std::int64_t num_rows);
  void add_to_residual(const NormWeights& post_norm, Tile tile);
  void project_logits(const ForwardBatch& batch, std::vector<float>& logits);

  float* residual(std::int64_t token) { return residual_.data() + token * model_.hidden_dim; }
  std::int64_t qkv_dim() const {
    return (model_.has_gated_attention ? 2 : 1) * model_.query_dim() + 2 * model_.kv_dim();
  }

  ModelConfig model_;
  ThreadPool& pool_;
  const Kernels& kernels_;
  float query_scale_ = 1;
  ModelWeights weights_;
  RopeTable global_rope_;
  RopeTable window_rope_;

  // Activations, reused by every pass. tile_tokens is the number of tokens of the current Tile.
  std::vector<float> residual_;      // [num_tokens, hidden_dim]
  std::vector<float> hidden_;        // [tile_tokens or num_logit_tokens, hidden_dim]
  std::vector<float> qkv_;           // [tile_tokens, qkv_dim()], or inputs of linear attention
  std::vector<float> attended_;      // [tile_tokens, query_dim], or the outputs of its heads
  std::vector<float> gate_up_;       // [rows of an MLP, its input's outputs], activated in place
  std::vector<float> added_;         // [tile_tokens, hidden_dim], what joins the residual
  Mixture mixture_;                  // of the tile's tokens
  std::vector<float> shared_gates_;  // [tile_tokens], of the shared expert
  LinearAttentionLayer linear_attention_;
  LatentAttentionLayer latent_attention_;
  // Cosines and sines by M-RoPE of a batch with images, [num_tokens, 2, pairs].
  std::vector<float> mixed_angles_;
  std::vector<std::uint8_t> mrope_axes_;  // [pairs]; empty without M-RoPE
  std::vector<AttentionItem> items_;      // [num_items] of the tile
  std::vector<AttentionArrays> arrays_;   // [num_threads]
};

}  // namespace metronome
