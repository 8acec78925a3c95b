// A cost model file of any kind made into a cost model.
#pragma once

#include <memory>

#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/cost_model_file.h"
#include "sim/cost/hardware.h"

namespace metronome {

// Step times of the file; KV capacity and, where the file says nothing of it, the host gap are
// those of the hardware. Throws ConfigError naming the file where it was measured with a model of
// another shape, and UnplacedConfigError where with another tensor_parallel_size or on other
// hardware.
std::unique_ptr<CostModel> make_cost_model(const CostModelFile& file, const ModelConfig& model,
                                           const HardwareSpec& hardware,
                                           const CostModelConfig& config);

}  // namespace metronome
