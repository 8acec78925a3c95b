// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings: the rotation frequencies of queries and keys.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model_config.h"

namespace metronome {

// The frequencies of a kind of layer, one for each of num_rotated() / 2 pairs, rounded to float as
// in transformers (modeling_rope_utils.py: default, linear, llama3, yarn, longrope). Pair i of a
// head is elements i and i + num_rotated() / 2, or 2i and 2i + 1 with has_interleaved_rope. At
// position p it is rotated by the angle float(p) * frequency, a float product. Empty with learned
// positions.
std::vector<float> rope_frequencies(const ModelConfig& model, bool is_window_layer);

// The factor of the cosines and sines of a kind of layer.
float rope_magnitude(const ModelConfig& model, bool is_window_layer);

// The factor of a query at this position, by query_scale_beta; 1 without.
float query_scale_at(const ModelConfig& model, std::int64_t position);

}  // namespace metronome
