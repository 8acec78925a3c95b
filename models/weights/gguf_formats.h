// SPDX-License-Identifier: Apache-2.0
// The bytes of the tensors of a GGUF file, by the modules of a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/model/model_config.h"
#include "models/gguf/gguf_file.h"

namespace metronome {

// A tensor's name in parts: {3, "attn_q", "weight"} for "blk.3.attn_q.weight", and a layer of -1
// for "output.weight".
struct GgufName {
  std::int64_t layer = -1;
  std::string_view part;
  std::string_view ending;
};
GgufName split_gguf_name(std::string_view name);

std::int64_t num_elements(const GgufTensor& tensor);

// Elements and bytes of the tensors that a model of so many layers computes with: neither layers
// behind these, which predict further tokens, nor what RoPE was read from.
struct GgufSize {
  std::int64_t num_params = 0;
  std::int64_t num_bytes = 0;
};
GgufSize gguf_size(const GgufFile& file, std::int64_t n_layers);

// Sets the formats and bytes_per_weight of a model whose shape was read from the file:
// - Matrices of one plain type: bytes_per_weight is its size.
// - Else bytes_per_weight is 2, and module_formats has the bytes of each kind of module. What
// norms,
//   biases and routers have beyond 16 bits counts with the embeddings, so that the model's
//   weight_bytes() are those of the file if its parameters are, within 1 %.
// Requires a model without a shape_error().
void read_gguf_formats(const GgufFile& file, ModelConfig& model);

}  // namespace metronome
