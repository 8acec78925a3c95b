// SPDX-License-Identifier: Apache-2.0
// Reads the rotary position embeddings of a published config.json.
#pragma once

#include "core/model/json_section.h"
#include "core/model/model_config.h"
#include "core/model/model_family.h"

namespace metronome {

// Sets rope_theta, rope_local_theta, rope_scaling, rotary_dim and the scale of queries from
// `rope_theta`, `rope_scaling` and `rope_parameters`, in the forms of transformers 4 and 5. A
// scaling that no executor computes becomes `unsupported`, unless something else already is.
// Requires the shape. Throws ConfigError.
void read_rope(const JsonSection& text, const ModelFamily& family, ModelConfig& model);

}  // namespace metronome
