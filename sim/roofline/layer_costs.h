// SPDX-License-Identifier: Apache-2.0
// The work of a model's layers between their products, on one device: attention, states and what
// the kernels around them move. roofline.h has the forms and their sources.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/model/model_config.h"

namespace metronome {

constexpr std::size_t kMaxWindows = 3;
constexpr std::size_t kMaxReaches = 1 + kMaxWindows;

// Layers whose queries attend to as many tokens. The other members are sums over these layers, in
// units of one layer of the model's first kind that attends, so that they are the number of layers
// where all attend alike.
struct Reach {
  std::int64_t window = 0;      // tokens; 0 = the whole context
  double chunk_pairs = 0;       // times chunk_flops_per_pair
  double decode_pairs = 0;      // times decode_flops_per_pair
  double chunk_positions = 0;   // times chunk_bytes_per_position
  double decode_positions = 0;  // times kv_bytes_per_position
};

struct LayerCosts {
  std::array<Reach, kMaxReaches> reaches;  // the first is of the whole context
  std::size_t num_windows = 0;
  // One layer of the first kind that attends. Chunks and decodes differ in latent attention only.
  double chunk_flops_per_pair = 0;
  double decode_flops_per_pair = 0;
  double chunk_bytes_per_position = 0;
  double kv_bytes_per_position = 0;
  double num_attending = 0;
  double num_latent = 0;       // of these, layers of latent attention
  double num_expanding = 0;    // of these, those whose chunks expand keys and values
  double expansion_flops = 0;  // of a position of an earlier chunk, in one of these
  // All layers.
  double state_bytes = 0;          // of a request
  double recurrence_flops = 0;     // of a token
  double scan_flops = 0;           // the same in chunk-parallel form
  double scan_flops_in_order = 0;  // of one head, where the blocks of a sequence follow each other
  double activation_bytes = 0;     // of a token

  std::size_t num_reaches() const { return 1 + num_windows; }
};

// Of a model that can be split (check_tensor_parallel) or not.
LayerCosts layer_costs(const ModelConfig& model, std::int64_t tensor_parallel_size);

}  // namespace metronome
