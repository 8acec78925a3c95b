// SPDX-License-Identifier: Apache-2.0
// The body of a cost model file of kind `fitted`.
#pragma once

#include <memory>

#include "core/base/json.h"
#include "sim/cost/cost_model_file.h"
#include "sim/fitted/fitted_model.h"

namespace metronome {

// `model` is the measured model; the file holds its shape.
Json fitted_body(const FittedModel& fitted, const ModelConfig& model);

// Throws ConfigError with file and key if fitted_body() did not write the body.
FittedModel read_fitted(const CostModelFile& file);

// See make_cost_model(). Also throws UnplacedConfigError for padded batches and gathered KV, as the
// measured times cannot be converted to them.
std::unique_ptr<CostModel> make_fitted_cost_model(const CostModelFile& file,
                                                  const ModelConfig& model,
                                                  const HardwareSpec& hardware,
                                                  const CostModelConfig& config);

}  // namespace metronome
