// SPDX-License-Identifier: Apache-2.0
// Llama, Qwen 3 and Gemma 3 as the formulas have them, over a right-padded batch: what the tests of
// the ragged path compare it with. It shares no arithmetic with cpu/transformer.h.
//
// The executor does not use it. It computes and masks the padding, and Eigen chooses from the shape
// of a matrix how to cut its products, so that a token's last bits depend on its neighbours.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/types.h"
#include "core/model/model_config.h"
#include "models/weights/model_weights.h"

namespace metronome {

// Keys and values of one sequence, contiguous, with room for `capacity` positions.
struct PaddedCache {
  PaddedCache(const ModelConfig& model, std::int32_t capacity);

  std::int32_t capacity = 0;
  std::vector<float> keys;    // [n_layers, n_kv_heads, capacity, head_dim], turned by RoPE
  std::vector<float> values;  // the same shape
};

// A chunk of a sequence: tokens at positions first_position, first_position + 1, ...
struct PaddedSequence {
  std::vector<TokenId> chunk;  // [chunk_len], not empty
  std::int32_t first_position = 0;
  PaddedCache* cache = nullptr;  // holds the positions before; gets those of the chunk
};

struct PaddedLogits {
  std::int64_t max_chunk_len = 0;
  std::int64_t vocab_size = 0;
  std::vector<float> values;  // [batch, max_chunk_len, vocab_size]; padding included

  std::span<const float> at(std::size_t sequence, std::size_t token) const;
};

class PaddedModel {
 public:
  // Whether a model is made like Llama, Qwen 3 or Gemma 3.
  static bool computes(const ModelConfig& model);

  // Reads all weights, to float32. Requires model.unsupported to be empty, and computes(model).
  PaddedModel(const ModelConfig& model, const WeightSource& weights);
  ~PaddedModel();

  // One forward pass. Chunks are padded on the right, to the longest, with `padding` at position 0;
  // what is cached is padded to the longest context. Requires chunks that fit their caches, and one
  // cache a sequence. The logits of real tokens, and the caches, do not depend on `padding`.
  PaddedLogits forward(std::span<const PaddedSequence> batch, TokenId padding = TokenId{0}) const;

 private:
  struct Weights;
  std::unique_ptr<Weights> weights_;
};

}  // namespace metronome
