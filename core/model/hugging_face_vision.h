// SPDX-License-Identifier: Apache-2.0
// Reads the vision tower of a config.json.
#pragma once

#include "core/model/json_section.h"
#include "core/model/model_config.h"

namespace metronome {

// Reads `vision_config` and the token ids beside it into model.vision, and the sections of M-RoPE
// from `text`, the language model's part. Keys and defaults: transformers'
// configuration_qwen3_vl.py. Throws ConfigError for a malformed value; records in
// model.unsupported what no executor computes.
void read_vision(const JsonSection& root, const JsonSection& text, ModelConfig& model);

}  // namespace metronome
