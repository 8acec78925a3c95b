// SPDX-License-Identifier: Apache-2.0
// Reads from a config.json which layers have a window, and which have RoPE.
#pragma once

#include "core/model/json_section.h"
#include "core/model/model_config.h"
#include "core/model/model_family.h"

namespace metronome {

// Sets sliding_window, global_layer_interval, window_layers and unrotated_layers, as the family's
// code in transformers reads them. Requires the shape. Throws ConfigError.
void read_layer_kinds(const JsonSection& text, const ModelFamily& family, ModelConfig& model);

}  // namespace metronome
