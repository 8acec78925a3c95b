// SPDX-License-Identifier: Apache-2.0
// Differences between GGUF files of a family of models and its Hugging Face folders.
// Sources: llama.cpp's conversion scripts (conversion/*.py), and constants.py of the `gguf`
// package.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_config.h"
#include "core/model/model_family.h"
#include "models/weights/model_weights.h"

namespace metronome {

struct GgufFamily {
  std::string_view name;             // general.architecture, and the prefix of the keys
  std::string_view architecture;     // Hugging Face's class
  std::string_view of_experts = {};  // the class of a file with experts; empty: it has none
  // Rows of Q and K are stored in the order of llama.cpp's RoPE, which rotates neighbours: row
  // j of d rows of a head is stored as row 2 * (j % (d / 2)) + j / (d / 2). So are their biases.
  bool permutes_rotary_rows = false;
  bool adds_one_to_norms = false;         // Gemma: a stored norm weight is 1 + that of the folder
  bool has_gate_in_up = false;            // Phi-3: ffn_up has the rows of gate, then those of up
  WindowRule windows = WindowRule::None;  // which layers attention.sliding_window is for
  std::int64_t window_default = 0;        // without the key; 0 = none
  // Queries of a model of so many layers are scaled by embedding_length / head_count; 0 = none are.
  std::int64_t layers_of_27b = 0;
};

// nullptr for a family that is not supported.
const GgufFamily* find_gguf_family(std::string_view name);

// The supported names of general.architecture, with commas between.
std::string gguf_family_names();
// `, did you mean 'qwen3'?` for a name close to a supported one, or nothing.
std::string gguf_family_hint(std::string_view name);

// Where a file may keep a tensor of weight_specs().
struct GgufPlace {
  std::string name;  // "blk.0.attn_q.weight" for "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // of the whole stored tensor, outermost dimension first
  std::int64_t first_row = 0;       // the spec's first row, counted over all outer dimensions
};

// The first one that the file has counts. A bias is stored in one dimension, and counts here as
// `cols` rows of one element. Empty for a tensor without a counterpart.
std::vector<GgufPlace> gguf_places(const ModelConfig& model, const GgufFamily& family,
                                   const WeightSpec& spec);

}  // namespace metronome
