// SPDX-License-Identifier: Apache-2.0
// Attention and states of a layer, by the keys that files use for them.
#pragma once

#include <cstdint>

#include "core/model/any_keys.h"
#include "core/model/any_layers.h"
#include "core/model/layer_kind.h"

namespace metronome {

// A kind of states that the keys are for; None: for none.
StateKind state_kind(const AnyKeys& keys);

// Of a layer of that width that attends.
AttentionPart any_attention(AnyKeys& keys, std::int64_t hidden_dim, const LayerPlan& plan);

// A layer of that width reads the cache of an earlier one, and has no keys and values.
void share_cache(std::int64_t hidden_dim, AttentionPart& attention);

// Of a layer with a state of that kind.
StatePart any_state(AnyKeys& keys, std::int64_t hidden_dim, StateKind kind);

}  // namespace metronome
