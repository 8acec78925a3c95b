// SPDX-License-Identifier: Apache-2.0
// Measured operators as the body of a cost model file, with the relevant part of the model's shape
// and its precision.
#pragma once

#include <memory>

#include "core/base/json.h"
#include "sim/cost/cost_model_file.h"
#include "sim/operators/operator_model.h"

namespace metronome {

// Describes the model of the times; the number of layers does not matter.
Json operator_body(const OperatorTimes& times, const ModelConfig& model);

// Reads a file of kind "operators". Throws ConfigError if its body is malformed, and if times fall
// as their quantity grows, which those of an import never do.
OperatorTimes read_operator_times(const CostModelFile& file);

// Throws ConfigError with the file's name if it was made for a model of another shape or precision.
// Throws UnplacedConfigError if `config` asks for something that operators have no times of.
std::unique_ptr<CostModel> make_operator_model(const CostModelFile& file, const ModelConfig& model,
                                               const HardwareSpec& hardware,
                                               const CostModelConfig& config);

}  // namespace metronome
