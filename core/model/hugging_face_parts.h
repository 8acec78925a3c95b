// SPDX-License-Identifier: Apache-2.0
// Reads from a config.json how the parts of a layer compute.
#pragma once

#include "core/model/json_section.h"
#include "core/model/model_config.h"
#include "core/model/model_family.h"

namespace metronome {

// Sets the family's traits and the parameters of the arithmetic: norms, RoPE, activation, biases,
// multipliers and caps. `root` is the file, `text` the language model's part. What no executor
// computes is recorded in `unsupported`. Of an unknown architecture it reads nothing. Requires the
// shape. Throws ConfigError.
void read_parts(const JsonSection& root, const JsonSection& text, const ModelFamily& family,
                ModelConfig& model);

}  // namespace metronome
