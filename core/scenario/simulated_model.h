// SPDX-License-Identifier: Apache-2.0
// The model of a scenario as simulations see it.
#pragma once

#include <string>

#include "core/config/config_node.h"
#include "core/model/model_config.h"

namespace metronome {

struct Scenario;

// find_model(), as engines load it: weights that a config.json declares float32 take 16 bits (dtype
// auto of vLLM, _resolve_auto_dtype, and of SGLang).
ModelConfig find_served_model(const std::string& name_or_path, const SourceLocation& where);

// The scenario's model as engines load it, with its keys `quantization` and `kv_cache.dtype`
// applied to the formats of weights and KV. Throws ConfigError as find_model does, and for mxfp4
// with a model without experts.
ModelConfig simulated_model(const Scenario& scenario);

// Whether the model's own file stores its weights in fp8: experts, or all where it has none.
bool is_stored_in_fp8(const Scenario& scenario);

// Throws ConfigError if the scenario asks for other formats than those of the model's files.
// Backends that compute use the files as they are.
void refuse_other_formats(const Scenario& scenario);

}  // namespace metronome
