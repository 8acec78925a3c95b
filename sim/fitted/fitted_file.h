// The body of a cost model file of kind `fitted`.
#pragma once

#include <memory>

#include "core/base/json.h"
#include "sim/cost/cost_model_file.h"
#include "sim/fitted/fitted_model.h"

namespace metronome {

// `model` is the one whose steps were measured; the file holds its shape.
Json fitted_body(const FittedModel& fitted, const ModelConfig& model);

// Throws ConfigError that names file and key where the body is not what fitted_body() writes.
FittedModel read_fitted(const CostModelFile& file);

// See make_cost_model(). Throws UnplacedConfigError also for padded batches and gathered KV: the
// steps were measured as they were.
std::unique_ptr<CostModel> make_fitted_cost_model(const CostModelFile& file,
                                                  const ModelConfig& model,
                                                  const HardwareSpec& hardware,
                                                  const CostModelConfig& config);

}  // namespace metronome
