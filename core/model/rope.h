// Rotary position embeddings: the rotation frequencies of queries and keys.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model_config.h"

namespace metronome {

// The head_dim / 2 frequencies of a kind of layer, rounded to float as in transformers
// (modeling_rope_utils.py: default, linear and llama3). Pair i of a head is elements i and i +
// head_dim / 2. At position p it is rotated by the angle float(p) * frequency, a float product.
std::vector<float> rope_frequencies(const ModelConfig& model, bool is_window_layer);

}  // namespace metronome
