// SPDX-License-Identifier: Apache-2.0
// Makes a cost model from a cost model file of any kind.
#pragma once

#include <memory>

#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/cost_model_file.h"

namespace metronome {

struct CostModelConfig;

// Step times come from the file. KV capacity comes from the hardware, as does the host gap if the
// file has none. Throws ConfigError with the file's name if it was measured with a model of another
// shape. Throws UnplacedConfigError for another tensor_parallel_size or other hardware.
std::unique_ptr<CostModel> make_cost_model(const CostModelFile& file, const ModelConfig& model,
                                           const HardwareSpec& hardware,
                                           const CostModelConfig& config);

// Whether its times are those of recorded steps, which had no drafts.
bool replays_steps(const CostModelFile& file);

}  // namespace metronome
