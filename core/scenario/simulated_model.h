// The model of a scenario as simulations see it.
#pragma once

#include "core/model/model_config.h"
#include "core/scenario/scenario.h"

namespace metronome {

// The scenario's model with its keys `quantization` and `kv_cache.dtype` applied to the formats of
// weights and KV. Throws ConfigError as find_model does, and for mxfp4 with a model without
// experts.
ModelConfig simulated_model(const Scenario& scenario);

// Throws ConfigError if the scenario asks for other formats than those of the model's files.
// Backends that compute use the files as they are.
void refuse_other_formats(const Scenario& scenario);

}  // namespace metronome
