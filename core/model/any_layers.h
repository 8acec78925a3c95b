// SPDX-License-Identifier: Apache-2.0
// Finds the layers of a model that attend, keep a state, or have experts, by the keys that
// files use for it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/any_keys.h"

namespace metronome {

struct LayerPlan {
  bool attends = true;
  bool has_window = false;    // it attends to few tokens
  bool shares_index = false;  // of sparse attention, with an earlier layer
  bool has_state = false;
  bool has_experts = false;
  bool has_mlp = true;  // dense or experts
};

// The number of layers: a key's, or the length of a list of them. Throws ConfigError without any.
std::int64_t num_layers(AnyKeys& keys);

// `has_experts`: the model has some, in all layers unless the file says otherwise. `is_state`: its
// layers keep a state and do not attend, unless the file says otherwise.
std::vector<LayerPlan> plan_layers(AnyKeys& keys, std::int64_t n_layers, bool has_experts,
                                   bool is_state);

}  // namespace metronome
