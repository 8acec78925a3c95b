// Executes a decoder-only transformer: Llama, Qwen 3 and Gemma 3, with ragged batches and a paged
// KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/model/model_config.h"
#include "core/model/model_weights.h"
#include "core/run/forward_batch.h"
#include "cpu/kernels.h"
#include "cpu/kv_store.h"
#include "cpu/packed_matrix.h"
#include "cpu/rope_table.h"
#include "cpu/thread_pool.h"

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
  std::int64_t weight_bytes() const;

  // One forward pass. Writes the keys and values of the batch's tokens into `kv`, and the logits of
  // batch.logit_tokens to `logits`, [num_logit_tokens, vocab_size]. Requires token ids below
  // vocab_size and block ids of `kv`.
  void forward(const ForwardBatch& batch, KvStore& kv, std::vector<float>& logits,
               const PollFn& poll = {});

 private:
  struct Layer {
    bool is_window = false;
    PackedMatrix qkv;               // [(n_heads + 2 * n_kv_heads) * head_dim, hidden_dim]
    PackedMatrix attention_output;  // [hidden_dim, n_heads * head_dim]
    PackedMatrix gate_up;           // [2 * ffn_dim, hidden_dim], gates first
    PackedMatrix down;              // [hidden_dim, ffn_dim]
    // Norm weights as multiplied. Empty: the model lacks that norm.
    std::vector<float> attention_norm;       // [hidden_dim]
    std::vector<float> query_norm;           // [head_dim]
    std::vector<float> key_norm;             // [head_dim]
    std::vector<float> attention_post_norm;  // [hidden_dim]
    std::vector<float> mlp_norm;             // [hidden_dim]
    std::vector<float> mlp_post_norm;        // [hidden_dim]
  };
  // Tokens [begin, end) of a batch that go through a layer together.
  struct Tile {
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::int32_t num_tokens() const { return end - begin; }
  };
  // Query tokens [begin, end) of one sequence against one KV head.
  struct AttentionItem {
    std::int32_t sequence;
    std::int32_t head;
    std::int32_t begin;
    std::int32_t end;
  };
  // The memory for an AttentionTask.
  struct AttentionScratch {
    std::vector<const float*> queries;         // [num_rows] -> [head_dim]
    std::vector<float*> outputs;               // [num_rows] -> [head_dim]
    std::vector<std::int32_t> positions;       // [num_rows]
    std::vector<const float*> key_tiles;       // [num_tiles] -> [head_dim, 16]
    std::vector<const float*> value_tiles;     // [num_tiles] -> [16, head_dim]
    std::vector<std::int32_t> tile_positions;  // [num_tiles + 1]
    std::vector<float> kernel;                 // [attention_scratch_floats()]
  };

  Layer load_layer(const WeightSource& weights, std::int64_t layer);
  std::vector<float> load_norm(const WeightSource& weights, std::int64_t layer,
                               const std::string& name) const;

  void embed(const ForwardBatch& batch);
  void run_layer(const Layer& layer, std::int64_t index, const ForwardBatch& batch, Tile tile,
                 KvStore& kv);
  void make_room(std::int64_t num_rows);
  void normalise(const std::vector<float>& norm, Tile tile);
  void multiply(const PackedMatrix& weights, const std::vector<float>& x, Tile tile,
                std::vector<float>& out) const;
  void place_heads(const Layer& layer, std::int64_t index, const ForwardBatch& batch, Tile tile,
                   KvStore& kv);
  void attend(const Layer& layer, std::int64_t index, const ForwardBatch& batch, Tile tile,
              const KvStore& kv);
  void attend_item(const Layer& layer, std::int64_t index, const ForwardBatch& batch, Tile tile,
                   const KvStore& kv, const AttentionItem& item, AttentionScratch& scratch);
  void activate(Tile tile);
  void add_to_residual(const std::vector<float>& post_norm, Tile tile);
  void project_logits(const ForwardBatch& batch, std::vector<float>& logits);

  template <class Work>
  void for_rows(std::int64_t num_rows, const Work& work);
  float* residual(std::int64_t token) { return residual_.data() + token * model_.hidden_dim; }
  std::int64_t query_dim() const { return model_.n_heads * model_.head_dim; }
  std::int64_t kv_dim() const { return model_.n_kv_heads * model_.head_dim; }

  ModelConfig model_;
  ThreadPool& pool_;
  const Kernels& kernels_;
  float query_scale_ = 1;
  PackedMatrix embedding_;         // [vocab_size, hidden_dim]
  PackedMatrix head_;              // [vocab_size, hidden_dim]; empty with tied embeddings
  std::vector<Layer> layers_;      // [n_layers]
  std::vector<float> final_norm_;  // [hidden_dim]
  RopeTable global_rope_;
  RopeTable window_rope_;

  // Activations, reused by every pass. tile_tokens is the number of tokens of the current Tile.
  std::vector<float> residual_;       // [num_tokens, hidden_dim]
  std::vector<float> hidden_;         // [tile_tokens or num_logit_tokens, hidden_dim]
  std::vector<float> qkv_;            // [tile_tokens, (n_heads + 2 * n_kv_heads) * head_dim]
  std::vector<float> attended_;       // [tile_tokens, n_heads * head_dim]
  std::vector<float> gate_up_;        // [tile_tokens, 2 * ffn_dim], activated in place of gates
  std::vector<AttentionItem> items_;  // [num_items] of the tile
  std::vector<AttentionScratch> scratch_;  // [num_threads]
};

}  // namespace metronome
