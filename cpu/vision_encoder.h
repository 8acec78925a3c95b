// SPDX-License-Identifier: Apache-2.0
// Encodes images with the vision tower of a model (core/model/layer_parts.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/model/image_grid.h"
#include "core/model/model_config.h"
#include "cpu/attention_arrays.h"
#include "cpu/kernels.h"
#include "cpu/layer_weights.h"
#include "cpu/rope_table.h"
#include "cpu/thread_pool.h"
#include "models/weights/model_weights.h"

namespace metronome {

// The result depends on the image alone, to the bit: not on earlier images or on the threads.
// Arithmetic: transformers' modeling_qwen3_vl.py.
class VisionEncoder {
 public:
  using PollFn = std::function<void()>;

  // Reads and packs the weights. `pool` outlives the encoder. Requires a model with a tower. Throws
  // the exceptions of `weights`.
  VisionEncoder(const ModelConfig& model, const WeightSource& weights, ThreadPool& pool,
                const PollFn& poll = {});

  // Floats of one token's features.
  std::int64_t token_floats() const { return tower_.features_per_token() * tower_.out_dim; }
  std::int64_t weight_bytes() const;

  // `patches` is [num_patches, patch_inputs], in the order of models/image's image_patches().
  // Writes features: [num_tokens, 1 + number of deepstack layers, out_dim]; of each token the
  // embedding, then what the first layers of the language model add. Calls `poll` between layers;
  // an exception from it ends the call.
  void encode(std::span<const float> patches, const ImageGrid& grid, std::vector<float>& features,
              const PollFn& poll = {});

 private:
  struct Block {
    NormWeights attention_norm;
    LinearWeights qkv;
    LinearWeights attention_output;
    NormWeights mlp_norm;
    LinearWeights mlp_input;
    LinearWeights mlp_output;
  };
  struct Merger {
    NormWeights norm;  // [hidden_dim], or of all patches that are joined
    LinearWeights input;
    LinearWeights output;
  };
  void embed(std::span<const float> patches, const ImageGrid& grid);
  void add_positions(std::int64_t patch, const ImageGrid& grid);
  void set_angles(const ImageGrid& grid);
  void run_block(const Block& block, std::int64_t num_patches);
  void place_heads(std::int64_t num_patches);
  void attend(std::int64_t num_patches);
  void attend_rows(std::int64_t head, std::int64_t begin, std::int64_t end,
                   std::int64_t num_patches, AttentionArrays& arrays);
  void run_mlp(const Block& block, std::int64_t num_patches);
  void merge(const Merger& merger, std::int64_t num_tokens, std::int64_t index,
             std::vector<float>& features);
  void multiply(const LinearWeights& weights, const float* x, std::int64_t num_rows,
                std::vector<float>& out);
  void normalise(const NormWeights& norm, const float* x, std::int64_t num_rows);
  float* residual(std::int64_t patch) { return residual_.data() + patch * tower_.hidden_dim; }
  std::int64_t head_dim() const { return tower_.hidden_dim / tower_.n_heads; }

  VisionTower tower_;
  ThreadPool& pool_;
  const Kernels& kernels_;
  LinearWeights patch_embedding_;  // [hidden_dim, patch_inputs]
  PackedMatrix positions_;         // [num_positions, hidden_dim]
  std::vector<Block> blocks_;
  Merger merger_;
  std::vector<Merger> deepstack_mergers_;
  RopeTable rope_;  // of rows and of columns

  // Activations of one image, reused by the next.
  std::vector<float> residual_;          // [num_patches, hidden_dim]
  std::vector<float> hidden_;            // the same shape
  std::vector<float> qkv_;               // [num_patches, 3 * hidden_dim]
  std::vector<float> attended_;          // [num_patches, hidden_dim]
  std::vector<float> added_;             // [num_patches or a tile of them, hidden_dim]
  std::vector<float> mlp_;               // [a tile of patches, ffn_dim]
  std::vector<float> merged_;            // [num_tokens, merge_size^2 * hidden_dim]
  std::vector<float> cos_;               // [num_patches, head_dim / 2]
  std::vector<float> sin_;               // the same shape
  std::vector<float> keys_;              // [n_heads, num_tiles, head_dim, 16]
  std::vector<float> values_;            // [n_heads, num_tiles, 16, head_dim]
  std::vector<std::int32_t> tiles_;      // [num_tiles + 1] first patches
  std::vector<AttentionArrays> arrays_;  // [num_threads]
};

// The patch at a place of the order in which patches are computed: groups of merge_size x
// merge_size, so that those of one token are neighbours.
struct PatchPlace {
  std::int64_t row = 0;
  std::int64_t column = 0;
};
PatchPlace patch_place(const VisionTower& tower, const ImageGrid& grid, std::int64_t patch);

}  // namespace metronome
